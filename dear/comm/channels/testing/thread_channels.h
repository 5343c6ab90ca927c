#pragma once

#include <memory>
#include <vector>

#include "dear/comm/channels/channels.h"

namespace dear::channels::testing {

// `size` ranks as threads of this process: channels r for the thread of rank r. A short message is copied
// when it is sent; the send of a longer one is done when the peer has received it.
std::vector<std::unique_ptr<Channels>> make_thread_channels(int size);

}  // namespace dear::channels::testing
