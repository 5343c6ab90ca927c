#pragma once

#include <chrono>

#include "dear/comm/gloo/gloo.h"
#include "dear/comm/group/group.h"

namespace dear::backends::testing {

// Rank `rank` of `size` that meet at this port of the loopback device.
inline channels::GlooOptions at_port(int port, int rank, int size,
                                     std::chrono::duration<double> timeout = std::chrono::seconds(60)) {
  return {.rank = rank,
          .size = size,
          .master_address = "127.0.0.1",
          .master_port = port,
          .deadline = Deadline::after(timeout)};
}

inline Group gloo_group(int port, int rank, int size,
                        std::chrono::duration<double> timeout = std::chrono::seconds(60),
                        const AwaitedOptions& options = {}) {
  return Group(make_gloo(at_port(port, rank, size, timeout), options), {.timeout = timeout});
}

}  // namespace dear::backends::testing
