#pragma once

#include <chrono>
#include <string>

#include "dear/train/c10d/process_group.h"

namespace dear::train {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  // Rank 0 opens a TCP store there, the others connect to it.
  std::string master_address = "127.0.0.1";
  int master_port = 29'500;
  // The network interface for messages; "" for the one that leads to the master.
  std::string interface_name{};
  std::chrono::duration<double> timeout = std::chrono::seconds(120);  // for all ranks to come
};

// "" where this build has Gloo; else what is missing.
std::string gloo_missing();

// A process group of c10d on Gloo: TCP between any hosts. TimeoutError naming the ranks that did not come;
// TransportError when the address cannot be opened or reached; ConfigError when this build has no Gloo.
ProcessGroup make_gloo(const GlooOptions& options);

}  // namespace dear::train
