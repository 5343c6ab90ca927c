#include "dear/comm/gloo/channels/gloo.h"

#include <algorithm>
#include <future>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "dear/base/admission/handshake.h"
#include "dear/base/admission/message.h"
#include "dear/base/admission/wires.h"
#include "dear/base/os/blocked_signals.h"
#include "dear/base/os/module.h"
#include "dear/base/os/prompt_thread.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/gloo/meeting/meeting.h"

namespace dear::channels {
namespace {

using admission::address_of_interface;
using admission::Wires;
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

std::unique_ptr<GlooMesh> make_mesh(const GlooBinding& binding, const GlooOptions& options) {
  try {
    // Threads of Gloo inherit how they are scheduled, and their signals, from the one that makes them.
    return std::async(
               std::launch::async,
               [&] {
                 os::make_this_thread_prompt();
                 const os::BlockedSignals blocked;  // they write to connections whose other end may be gone
                 return binding.make(
                     {.rank = options.rank, .size = options.size, .timeout = left(options.deadline)});
               })
        .get();
  } catch (const std::exception& error) {
    throw TransportError(fmt::format("rank {} cannot start Gloo: {}", options.rank, error.what()));
  }
}

// What a rank says to another: where it listens, and, if it is rank 0, a text that is new with every meeting.
struct Introduction {
  Wires::Place place;
  std::string occasion;

  [[nodiscard]] std::string text() const {
    return admission::joined({place.address, std::to_string(place.port), occasion});
  }
};

Introduction read_introduction(const std::string& text, int rank, int peer) {
  const auto parts = admission::parted(text);
  if (!parts || parts->size() != 3) {
    throw TransportError(fmt::format(
        "rank {} does not understand rank {}: run the same build of DeAR on all hosts", rank, peer));
  }
  return {.place = {.address = (*parts)[0], .port = std::atoi((*parts)[1].c_str())}, .occasion = (*parts)[2]};
}

void check_reach(const Wires::Place& theirs, const std::string& own, int rank, int peer) {
  if (!is_loopback(theirs.address) || is_loopback(own)) return;
  throw ConfigError(fmt::format(
      "rank {} cannot reach rank {}, which knows itself as {} only: on its host MASTER_ADDR leads to the "
      "host "
      "itself; set MASTER_ADDR to the number of an address that others reach, or GLOO_SOCKET_IFNAME",
      rank, peer, theirs.address));
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
                               .secret = options.secret,
                               .deadline = options.deadline};
  check_meeting(meeting);
  const std::string own = options.interface_name.empty()
                              ? own_address(meeting)
                              : address_of_interface(options.interface_name, options.rank);
  struct Kept {
    std::shared_ptr<const void> place;
    std::vector<os::NotInChildren> sockets;
  };
  const auto kept = std::make_shared<Kept>();
  if (options.rank == 0 && options.size > 1) kept->place = hold_place(meeting);
  std::unique_ptr<GlooMesh> mesh = make_mesh(binding, options);
  Wires wires(own, options.rank);
  Introduction mine{.place = wires.place(), .occasion = options.rank == 0 ? admission::fresh_nonce() : ""};
  const auto met =
      open_meeting(meeting, std::vector<std::string>(static_cast<std::size_t>(options.size), mine.text()));
  std::vector<Wires::Wire> connected;
  try {
    std::vector<Wires::Place> places;
    for (int peer = 0; peer < options.size; ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      const Introduction theirs =
          peer == options.rank ? mine : read_introduction(met->messages()[at], options.rank, peer);
      check_reach(theirs.place, own, options.rank, peer);
      places.push_back(theirs.place);
      if (peer == 0) mine.occasion = theirs.occasion;
    }
    connected = wires.connect({.key = admission::derived_key(admission::job_key(options.secret, options.job),
                                                             "wires", mine.occasion),
                               .rank = options.rank,
                               .size = options.size,
                               .deadline = options.deadline,
                               .monitor = met.get()},
                              places);
    met->settle();
  } catch (const Error& error) {
    met->fail(error);
  }
  try {
    for (int peer = 0; peer < options.size; ++peer) {
      if (peer == options.rank) continue;
      Wires::Wire& wire = connected[static_cast<std::size_t>(peer)];
      kept->sockets.push_back(std::move(wire.kept_out));
      mesh->adopt(peer, wire.socket.release());
    }
  } catch (const std::exception& error) {
    throw TransportError(
        fmt::format("rank {} cannot hand its connections to Gloo: {}", options.rank, error.what()));
  }
  mesh->kept = kept;
  return mesh;
}

}  // namespace dear::channels
