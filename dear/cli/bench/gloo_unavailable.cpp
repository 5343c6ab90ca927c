#include "dear/base/error.h"
#include "dear/cli/bench/gloo_engine.h"

namespace dear::cli::bench {

std::string gloo_missing() {
  return "this `dear` was built without libtorch; install it and build with DEAR_TORCH=ON";
}

std::unique_ptr<Engine> open_gloo_engine(const EngineOptions&) { throw ConfigError(gloo_missing()); }

const BackendTable& torch_backends() {
  static const BackendTable kNone;
  return kNone;
}

}  // namespace dear::cli::bench
