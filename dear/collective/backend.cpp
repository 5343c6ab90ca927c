#include "dear/collective/backend.h"

#include <fmt/format.h>

#include "dear/base/error.h"

namespace dear {

Buffer Backend::allocate_shared(std::int64_t /*bytes*/, Deadline /*deadline*/) { refuse_to_share(); }

std::unique_ptr<Backend> Backend::split(const Subgroup& /*subgroup*/, Deadline /*deadline*/) {
  throw ConfigError(fmt::format("rank {}: this group ({}) cannot be split", rank(), description()));
}

void Backend::refuse_to_share() const {
  const std::string modelled = modelled_network();
  if (!modelled.empty()) {
    throw ConfigError(
        fmt::format("rank {}: ranks on a modelled network ({}) stand for hosts of their own, which share no "
                    "memory: leave the modelled network out",
                    rank(), modelled));
  }
  throw ConfigError(
      fmt::format("rank {}: this group ({}) has no memory that all its ranks share: put them on one host "
                  "with backend shm",
                  rank(), description()));
}

}  // namespace dear
