#include "dear/comm/group/testing/groups.h"

#include <utility>

namespace dear::comm::testing {

std::vector<std::string> run_on_threads(std::vector<std::unique_ptr<Backend>> backends,
                                        Group::Options options, const GroupBody& body) {
  return run_on_threads(static_cast<int>(backends.size()), [&](int rank) {
    Group group(std::move(backends[static_cast<std::size_t>(rank)]), options);
    body(group);
  });
}

}  // namespace dear::comm::testing
