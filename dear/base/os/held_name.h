#pragma once

#include <memory>
#include <string>

#include "dear/base/vocabulary/deadline.h"

namespace dear::os {

// As long as one lives in this process, no other process of this host (network namespace) holds the name, of
// up to 100 bytes: null there at the deadline. All who ask in this process share it. The kernel lets go of it
// when this process ends, also where children that it forked live on. Nothing listens, and it lies in no file
// system. Where the kernel has no such names all hold them.
std::shared_ptr<const void> hold_name(const std::string& name, Deadline deadline);

}  // namespace dear::os
