#include "dear/backends/gloo/gloo.h"

namespace dear::backends {

std::unique_ptr<Backend> make_gloo(const transport::GlooOptions& where, const AwaitedOptions& options) {
  return make_awaited(transport::open_gloo(where), options);
}

}  // namespace dear::backends
