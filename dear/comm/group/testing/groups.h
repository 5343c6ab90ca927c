#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dear/base/os/testing/ranks.h"
#include "dear/comm/group/group.h"

namespace dear::comm::testing {

using os::testing::run_on_threads;

using GroupBody = std::function<void(Group&)>;

// Runs `body` on threads, on groups over these backends; the reports by rank.
std::vector<std::string> run_on_threads(std::vector<std::unique_ptr<Backend>> backends,
                                        Group::Options options, const GroupBody& body);

}  // namespace dear::comm::testing
