#pragma once

#include <memory>
#include <vector>

#include "dear/comm/shm/shm.h"

// Ranks that are threads of this process and meet in its memory: backend r is for the thread of rank r.
namespace dear::backends::testing {

std::vector<std::unique_ptr<Backend>> make_shm_threads(int size);
std::vector<std::unique_ptr<SharedMemory>> make_shared_memory_threads(int size);

}  // namespace dear::backends::testing
