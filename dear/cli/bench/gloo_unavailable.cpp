#include "dear/base/error.h"
#include "dear/cli/bench/gloo_engine.h"

namespace dear::cli::bench {

std::string gloo_missing() {
  return "this `dear` was built without libtorch's Gloo; build it with DEAR_TORCH=ON and Gloo's headers";
}
std::string c10d_gloo_missing() { return gloo_missing(); }

std::unique_ptr<Engine> open_gloo_engine(const EngineOptions&) { throw ConfigError(gloo_missing()); }
std::unique_ptr<Engine> open_c10d_gloo_engine(const EngineOptions&) { throw ConfigError(gloo_missing()); }

}  // namespace dear::cli::bench
