#include "dear/train/c10d/gloo.h"

#include <algorithm>
#include <arpa/inet.h>
#include <future>
#include <netdb.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "dear/base/blocked_signals.h"
#include "dear/base/deadline.h"
#include "dear/base/error.h"
#include "dear/base/file_descriptor.h"
#include "dear/collective/prompt_thread.h"

namespace dear::train {
namespace {

using std::chrono::milliseconds;
using Store = c10::intrusive_ptr<::c10d::Store>;

milliseconds left(Deadline deadline) {
  return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline.remaining()));
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

void check(const GlooOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    throw ConfigError(fmt::format("there is no rank {} among {} ranks", options.rank, options.size));
  }
  if (options.master_address.empty() || options.master_port < 1 || options.master_port > 65'535) {
    throw ConfigError(
        fmt::format("Gloo cannot meet at \"{}\" port {}: set MASTER_ADDR to the host of rank 0 and "
                    "MASTER_PORT to a free port "
                    "on it (1 to 65535), alike on all ranks",
                    options.master_address, options.master_port));
  }
}

// The address by which this host is seen from the master's network.
std::string own_address(const GlooOptions& options) {
  addrinfo* found = nullptr;
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
  const int error = getaddrinfo(options.master_address.c_str(), std::to_string(options.master_port).c_str(),
                                &hints, &found);
  if (error != 0) {
    throw TransportError(fmt::format("rank {} cannot find the host {} of rank 0: {} (check MASTER_ADDR)",
                                     options.rank, options.master_address, gai_strerror(error)));
  }
  std::string own;
  for (const addrinfo* at = found; at != nullptr && own.empty(); at = at->ai_next) {
    // Connecting a datagram socket sends nothing: it only picks a way.
    const FileDescriptor socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    char text[NI_MAXHOST] = {};
    if (socket.is_open() && ::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::getsockname(socket.get(), generic, &length) == 0 &&
        ::getnameinfo(generic, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
      own = text;
    }
  }
  freeaddrinfo(found);
  if (own.empty()) {
    throw TransportError(
        fmt::format("rank {} has no way to the host {} of rank 0: check MASTER_ADDR and this host's network",
                    options.rank, options.master_address));
  }
  return own;
}

Store open_store(const GlooOptions& options, Deadline deadline) {
  ::c10d::TCPStoreOptions store;
  store.port = static_cast<std::uint16_t>(options.master_port);
  store.isServer = options.rank == 0;
  store.waitWorkers = false;  // it would say only that some are missing
  store.timeout = std::chrono::ceil<std::chrono::seconds>(left(deadline));  // it counts in whole ones
  try {
    return c10::make_intrusive<::c10d::TCPStore>(options.master_address, store);
  } catch (const std::exception& error) {
    if (options.rank == 0) {
      throw TransportError(
          fmt::format("rank 0 cannot open the meeting place at {} port {} ({}): choose another MASTER_PORT",
                      options.master_address, options.master_port, first_line(error)));
    }
    throw TimeoutError(
        fmt::format("rank {} did not find rank 0 at {} port {} in {:.3g} s ({}): start all ranks, with the "
                    "same MASTER_ADDR and "
                    "MASTER_PORT",
                    options.rank, options.master_address, options.master_port, options.timeout.count(),
                    first_line(error)));
  }
}

std::string key(const char* what, int rank) { return fmt::format("dear/{}/{}", what, rank); }

void say(const Store& store, const GlooOptions& options, const char* what) {
  store->set(key(what, options.rank), std::vector<std::uint8_t>{1});
}

// None when the store cannot be asked any more.
std::vector<int> missing_in(const Store& store, const GlooOptions& options, const char* what) {
  std::vector<int> missing;
  try {
    for (int rank = 0; rank < options.size; ++rank) {
      if (!store->check({key(what, rank)})) missing.push_back(rank);
    }
  } catch (const std::exception&) {
    missing.clear();
  }
  return missing;
}

// Returns when every rank has said `what` in the store.
void wait_for_all(const Store& store, const GlooOptions& options, const char* what, Deadline deadline) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < options.size; ++rank) keys.push_back(key(what, rank));
  try {
    store->wait(keys, left(deadline));
  } catch (const std::exception& error) {
    const std::vector<int> missing = missing_in(store, options, what);
    if (missing.empty()) {
      throw TransportError(fmt::format(
          "rank {} lost the meeting place of rank 0 ({}): that rank ended or gave up, see what it printed",
          options.rank, first_line(error)));
    }
    throw TimeoutError(fmt::format(
        "rank {}: of {} ranks, {} {} did not come in {:.3g} s: start them all, with the same MASTER_ADDR, "
        "MASTER_PORT and WORLD_SIZE",
        options.rank, options.size, missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "),
        options.timeout.count()));
  }
}

std::shared_ptr<::gloo::transport::Device> make_device(const GlooOptions& options,
                                                       const std::string& address) {
  return options.interface_name.empty()
             ? ::c10d::ProcessGroupGloo::createDeviceForHostname(address)
             : ::c10d::ProcessGroupGloo::createDeviceForInterface(options.interface_name);
}

}  // namespace

std::string gloo_missing() { return ""; }

ProcessGroup make_gloo(const GlooOptions& options) {
  check(options);
  const Deadline deadline = Deadline::after(options.timeout);
  const std::string address = options.interface_name.empty() ? own_address(options) : "";
  const Store store = open_store(options, deadline);
  try {
    say(store, options, "here");
    wait_for_all(store, options, "here", deadline);
    auto gloo = ::c10d::ProcessGroupGloo::Options::create(left(deadline));
    gloo->threads = 1;  // for collectives of its own, which we do not use
    // Gloo's own threads inherit how they are scheduled, and their signals, from the one that makes them.
    const ProcessGroup group =
        std::async(std::launch::async, [&]() -> ProcessGroup {
          collective::make_this_thread_prompt();
          const BlockedSignals blocked;  // they write to connections whose other end may be gone
          gloo->devices.push_back(make_device(options, address));
          return c10::make_intrusive<::c10d::ProcessGroupGloo>(store, options.rank, options.size, gloo);
        }).get();
    // The store goes with rank 0, which must not leave while others still read from it.
    say(store, options, "connected");
    if (options.rank == 0) wait_for_all(store, options, "connected", deadline);
    return group;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw TransportError(fmt::format(
        "rank {} cannot connect to the other ranks over Gloo ({}): check that the hosts reach each other on "
        "the "
        "interface of {}",
        options.rank, first_line(error), options.interface_name.empty() ? address : options.interface_name));
  }
}

}  // namespace dear::train
