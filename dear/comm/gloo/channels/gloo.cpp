#include "dear/comm/gloo/channels/gloo.h"

#include <algorithm>
#include <future>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "dear/base/os/blocked_signals.h"
#include "dear/base/os/module.h"
#include "dear/base/os/prompt_thread.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/gloo/meeting/meeting.h"
#include "dear/comm/gloo/meeting/message.h"

namespace dear::channels {
namespace {

using std::chrono::milliseconds;

constexpr const char* kModule = "dear_gloo";
constexpr const char* kSymbolOfGloo = "_ZN4gloo7ContextD1Ev";  // gloo::Context::~Context()

const GlooBinding& load() {
  if (!os::Module::exists(kModule)) {
    throw ConfigError(
        "DeAR was built without Gloo: install libgloo-dev and build it again, or choose another backend");
  }
  const os::Module module = os::Module::open_apart(kModule, kSymbolOfGloo);
  const GlooBinding* const binding = module.function<const GlooBinding*()>(kGlooBindingSymbol)();
  if (binding->revision != kGlooBindingRevision) {
    throw ConfigError(fmt::format(
        "{} belongs to another version of DeAR: build or install both together, anew", module.path()));
  }
  return *binding;
}

milliseconds left(Deadline deadline) {
  return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline.remaining()));
}

bool is_loopback(std::string_view address) { return address.starts_with("127.") || address == "::1"; }

std::unique_ptr<GlooMesh> make_mesh(const GlooBinding& binding, const GlooOptions& options,
                                    const std::string& address) {
  try {
    // Threads of Gloo inherit how they are scheduled, and their signals, from the one that makes them.
    return std::async(
               std::launch::async,
               [&] {
                 os::make_this_thread_prompt();
                 const os::BlockedSignals blocked;  // they write to connections whose other end may be gone
                 return binding.make({.rank = options.rank,
                                      .size = options.size,
                                      .interface_name = options.interface_name.c_str(),
                                      .own_address = address.c_str(),
                                      .timeout = left(options.deadline)});
               })
        .get();
  } catch (const std::exception& error) {
    if (options.interface_name.empty()) {
      throw TransportError(fmt::format("rank {} cannot start Gloo on its address {}: {}", options.rank,
                                       address, error.what()));
    }
    throw ConfigError(fmt::format(
        "rank {} cannot start Gloo on the network interface {} ({}): set GLOO_SOCKET_IFNAME to one of this "
        "host that has an address, or leave it out",
        options.rank, options.interface_name, error.what()));
  }
}

// What a rank says to a peer: its own address for humans, "" where an interface was named, and Gloo's.
void connect(GlooMesh& mesh, int peer, const std::string& message, const std::string& own) {
  const auto parts = parted(message);
  if (!parts || parts->size() != 2) {
    throw TransportError(fmt::format(
        "rank {} does not understand rank {}: run the same build of DeAR on all hosts", mesh.rank(), peer));
  }
  const std::string& theirs = parts->front();
  if (is_loopback(theirs) && !own.empty() && !is_loopback(own)) {
    throw ConfigError(fmt::format(
        "rank {} cannot reach rank {}, which knows itself as {} only: on its host MASTER_ADDR leads to the "
        "host "
        "itself; set MASTER_ADDR to the number of an address that others reach, or GLOO_SOCKET_IFNAME",
        mesh.rank(), peer, theirs));
  }
  try {
    mesh.connect(peer, parts->back());
  } catch (const std::exception& error) {
    throw TransportError(
        fmt::format("rank {} cannot connect to rank {} over Gloo ({}): see whether that rank ended, and "
                    "whether the hosts "
                    "reach each other {}",
                    mesh.rank(), peer, error.what(),
                    theirs.empty() ? std::string("on the interfaces of GLOO_SOCKET_IFNAME")
                                   : fmt::format("at {} and {}", own, theirs)));
  }
}

}  // namespace

std::string gloo_missing() {
  try {
    load();
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

std::unique_ptr<GlooMesh> open_gloo(const GlooOptions& options) {
  const GlooBinding& binding = load();
  const MeetingOptions meeting{.rank = options.rank,
                               .size = options.size,
                               .master_address = options.master_address,
                               .master_port = options.master_port,
                               .job = options.job,
                               .deadline = options.deadline};
  check_meeting(meeting);
  const std::string own = options.interface_name.empty() ? own_address(meeting) : "";
  std::unique_ptr<GlooMesh> mesh = make_mesh(binding, options, own);
  std::vector<std::string> messages(static_cast<std::size_t>(options.size));
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer == options.rank) continue;
    messages[static_cast<std::size_t>(peer)] = joined({own, std::string(mesh->address_for(peer))});
  }
  messages = meet(meeting, messages);
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer != options.rank) connect(*mesh, peer, messages[static_cast<std::size_t>(peer)], own);
  }
  return mesh;
}

}  // namespace dear::channels
