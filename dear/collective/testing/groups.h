#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dear/collective/group.h"
#include "dear/host/testing/ranks.h"

namespace dear::collective::testing {

using host::testing::run_on_threads;

using GroupBody = std::function<void(Group&)>;

// Runs `body` on threads, on groups over these backends; the reports by rank.
std::vector<std::string> run_on_threads(std::vector<std::unique_ptr<Backend>> backends,
                                        Group::Options options, const GroupBody& body);

}  // namespace dear::collective::testing
