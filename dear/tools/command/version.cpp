#include "dear/tools/command/version.h"

#include "dear_commit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/comm/gloo/channels/gloo.h"
#include "dear/comm/mpi/channels/modules.h"
#include "dear/systems/train_command/training_module.h"

namespace dear::cli {

std::string version_text() {
  const std::string commit = DEAR_COMMIT;
  const std::vector<std::string> mpi = channels::mpi_implementations();
  return fmt::format("dear {}{}\nPyTorch: {}\nMPI: {}\nGloo: {}", DEAR_VERSION,
                     commit.empty() ? "" : fmt::format(" (commit {})", commit),
                     train_command::training_missing().empty() ? DEAR_TORCH_VERSION : "none",
                     mpi.empty() ? "none" : fmt::format("{}", fmt::join(mpi, ", ")),
                     channels::gloo_missing().empty() ? "yes" : "none");
}

}  // namespace dear::cli
