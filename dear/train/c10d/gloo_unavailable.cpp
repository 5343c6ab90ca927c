#include "dear/base/error.h"
#include "dear/train/c10d/gloo.h"

namespace dear::train {

std::string gloo_missing() {
  return "this DeAR was built without Gloo: install its headers (Debian's libgloo-dev) and a libtorch with "
         "it, "
         "and build again, or choose another backend";
}

ProcessGroup make_gloo(const GlooOptions& /*options*/) { throw ConfigError(gloo_missing()); }

}  // namespace dear::train
