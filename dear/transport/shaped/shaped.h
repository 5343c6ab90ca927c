#pragma once

#include <memory>

#include "dear/cluster/network.h"
#include "dear/transport/channels.h"

namespace dear::transport {

// Channels on which messages take the time of a modelled link, between ranks of one host. A message of m
// bytes keeps the sender's port out and the receiver's port in busy for alpha + m beta seconds, from the
// moment on in which it was started and both ports are free; then it is there. Both ports of a rank work at
// once. The clock is that of the host, and a rank that wakes late delays neither port. A send is done when
// the port has carried it. TimeoutError, on all ranks, for what the link does not carry within the deadline.
std::unique_ptr<Channels> make_shaped_channels(std::unique_ptr<Channels> inner, const Network& network);

}  // namespace dear::transport
