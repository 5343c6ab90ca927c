#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dear/comm/group/testing/groups.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::testing {

// Runs `body` on two ranks in shared memory. Returns "ok" or the error with which each ends, by rank.
inline std::vector<std::string> on_two_ranks(const std::function<void(int rank, Group& group)>& body) {
  return comm::testing::run_on_threads(backends::testing::make_shm_threads(2), {},
                                       [&](Group& group) { body(group.rank(), group); });
}

}  // namespace dear::testing
