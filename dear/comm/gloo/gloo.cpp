#include "dear/comm/gloo/gloo.h"

namespace dear::backends {

std::unique_ptr<Backend> make_gloo(const channels::GlooOptions& where, const AwaitedOptions& options) {
  return make_awaited(channels::open_gloo(where), options);
}

}  // namespace dear::backends
