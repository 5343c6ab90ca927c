#pragma once

#include <memory>

#include "dear/comm/awaited/awaited.h"
#include "dear/comm/gloo/channels/gloo.h"
#include "dear/comm/group/backend.h"

namespace dear::backends {

// Ranks on any hosts, over Gloo's messages on TCP; no MPI starts them: they meet at an address that all know.
// All ranks call it, with the same options but the rank. Errors of channels::open_gloo().
std::unique_ptr<Backend> make_gloo(const channels::GlooOptions& where, const AwaitedOptions& options = {});

}  // namespace dear::backends
