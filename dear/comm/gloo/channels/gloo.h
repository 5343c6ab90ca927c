#pragma once

#include <memory>
#include <string>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/gloo/channels/binding.h"

// Gloo as a messaging library underneath: TCP between ranks on any hosts, without an MPI to start them.
//
// [Note: two copies of Gloo] libtorch_cpu.so of PyTorch 2 has a Gloo of its own inside, whose symbols it
// shows and whose headers it lacks; the one of Debian that this folder is compiled against is years older. In
// a program that links libtorch both would be mixed, function by function. So libgloo is linked to a module
// alone, loaded such that the module and libgloo find symbols among themselves before they look at the
// program (Module::open_apart).
namespace dear::channels {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  // Where ranks meet: see meeting.h.
  std::string master_address{};
  int master_port = 0;
  std::string job{};
  std::string secret{};
  // The network interface for messages; "" for the one that leads to the master.
  std::string interface_name{};
  Deadline deadline;  // for all ranks to come and every connection to stand
};

// "" where Gloo can be had in this process; else what is missing and how to get it. Loads the module.
std::string gloo_missing();

// Gloo between all ranks; each calls it. Errors of meet(), ConfigError where Gloo is missing or the interface
// is none, TimeoutError or TransportError naming the ranks to which no connection could be made. Every
// connection has proved who is at its ends before Gloo sees it, and nothing listens afterwards.
std::unique_ptr<GlooMesh> open_gloo(const GlooOptions& options);

}  // namespace dear::channels
