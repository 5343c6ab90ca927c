#include "dear/cli/worker.h"

#include <iostream>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/cli/exit_status.h"

namespace dear::cli {

void fail_as_rank(std::string_view command, int rank, const std::exception& error) {
  // Every rank throws the same of these.
  if (rank == 0 || dynamic_cast<const MismatchError*>(&error) == nullptr) {
    const std::string name = fmt::format("rank {}: ", rank);
    const std::string_view message = error.what();
    std::cerr << fmt::format("{}: {}{}\n", command, message.starts_with(name) ? "" : name, message);
  }
  throw ExitStatus{dynamic_cast<const ConfigError*>(&error) != nullptr ? kExitWrongUsage : kExitFailure};
}

}  // namespace dear::cli
