#pragma once

#include <memory>

#include "dear/backends/awaited/awaited.h"
#include "dear/collective/backend.h"
#include "dear/transport/gloo/gloo.h"

namespace dear::backends {

// Ranks on any hosts, over Gloo's messages on TCP; no MPI starts them: they meet at an address that all know.
// All ranks call it, with the same options but the rank. Errors of transport::open_gloo().
std::unique_ptr<Backend> make_gloo(const transport::GlooOptions& where, const AwaitedOptions& options = {});

}  // namespace dear::backends
