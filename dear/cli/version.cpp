#include "dear/cli/version.h"

#include "dear_commit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/demo/training_module.h"
#include "dear/transport/gloo/gloo.h"
#include "dear/transport/mpi/modules.h"

namespace dear::cli {

std::string version_text() {
  const std::string commit = DEAR_COMMIT;
  const std::vector<std::string> mpi = transport::mpi_implementations();
  return fmt::format("dear {}{}\nPyTorch: {}\nMPI: {}\nGloo: {}", DEAR_VERSION,
                     commit.empty() ? "" : fmt::format(" (commit {})", commit),
                     demo::training_missing().empty() ? DEAR_TORCH_VERSION : "none",
                     mpi.empty() ? "none" : fmt::format("{}", fmt::join(mpi, ", ")),
                     transport::gloo_missing().empty() ? "yes" : "none");
}

}  // namespace dear::cli
