#include "dear/base/launch/hosts.h"

#include <algorithm>
#include <cerrno>
#include <netdb.h>
#include <numeric>
#include <tuple>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/admission/handshake.h"
#include "dear/base/launch/host_words.h"
#include "dear/base/launch/pipe.h"
#include "dear/base/vocabulary/error.h"

namespace dear::launch {
namespace {

using admission::MeetingConnection;
using admission::MeetingMessage;

constexpr auto kAttempt = std::chrono::seconds(5);       // to be let in
constexpr auto kPatience = std::chrono::seconds(5);      // until it is said what is waited for
constexpr auto kPause = std::chrono::milliseconds(200);  // between two
constexpr auto kLastWords = std::chrono::seconds(5);
constexpr std::size_t kMostUnknown = 1024;
constexpr std::size_t kLongestName = 256;

std::string key_of(const HostsOptions& options) {
  return admission::job_key(options.secret, fmt::format("launchers at port {}", options.port));
}

std::string name_of_this_host() {
  char name[kLongestName] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

admission::Addresses addresses_of(const HostsOptions& options) {
  addrinfo* found = nullptr;
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  const int error =
      ::getaddrinfo(options.address.c_str(), std::to_string(options.port).c_str(), &hints, &found);
  if (error != 0)
    throw ConfigError(fmt::format("--meet {}:{}: this host does not know the address '{}': {}",
                                  options.address, options.port, options.address, ::gai_strerror(error)));
  return {found, freeaddrinfo};
}

std::string text_of(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = {};
  ::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

// Says once, after a while, what is waited for.
class Announcement {
 public:
  explicit Announcement(const HostsOptions& options) : say_(options.say) {}
  void make(const std::string& sentence) {
    if (!due_.expired() || !say_) return;
    say_(sentence);
    say_ = nullptr;
  }

 private:
  std::function<void(const std::string&)> say_;
  Deadline due_ = Deadline::after(kPatience);
};

// Waits until one is ready, a moment at most.
void sleep_on(std::vector<pollfd>& files, Deadline deadline) {
  const Deadline soon = Deadline::after(kPause);
  poll_until(files, soon.at() < deadline.at() ? soon : deadline);
}

}  // namespace

std::string secret_of_ranks(const HostsOptions& options, const std::string& run_id) {
  return options.secret.empty() ? "" : admission::derived_key(key_of(options), "ranks", run_id);
}

// ---- the leader

Hosts::Hosts(os::FileDescriptor listener, const HostsOptions& options, const std::string& address)
    : options_(options),
      held_(hold_port(address)),
      door_(std::move(listener), key_of(options), 0, options.hosts, admission::kLongestMessage) {
  hosts_.push_back(
      {.name = name_of_this_host(), .address = address, .port = held_.port, .ranks = options.ranks});
  const Deadline deadline = Deadline::after(options.wait);
  Announcement waits(options);
  while (count() < options.hosts) {
    waits.make(fmt::format("{} of {} hosts have come to {} port {}: waiting for the others", count(),
                           options.hosts, address, options.port));
    std::vector<pollfd> files;
    add_to(files);
    sleep_on(files, deadline);
    hear();
    hosts_.erase(std::remove_if(hosts_.begin() + 1, hosts_.end(), [](const Host& one) { return !one.wire; }),
                 hosts_.end());
    if (deadline.expired() && count() < options.hosts) {
      std::vector<std::string> names;
      for (const Host& host : hosts_) names.push_back(host.name);
      throw TimeoutError(fmt::format(
          "{} of {} hosts came to {} port {} within {:g} s: {}; start `dear launch` with the same --hosts "
          "and --meet, and the same DEAR_SECRET_FILE if any, on the others",
          count(), options.hosts, address, options.port, options.wait.count(), fmt::join(names, ", ")));
    }
  }
  // Numbers do not depend on who came first.
  std::sort(hosts_.begin() + 1, hosts_.end(), [](const Host& a, const Host& b) {
    return std::tie(a.name, a.address, a.port) < std::tie(b.name, b.address, b.port);
  });
}

int Hosts::all_ranks() const {
  return std::accumulate(hosts_.begin(), hosts_.end(), 0,
                         [](int sum, const Host& host) { return sum + host.ranks; });
}

bool Hosts::takes_ranks(int host) const {
  const Host& one = at(host);
  return !one.leaves && (host == 0 || (one.wire && !one.wire->is_gone()));
}

std::vector<int> Hosts::hosts_of(int ranks) const {
  std::vector<int> hosts;
  for (int host = 0; host < count(); ++host)
    if (takes_ranks(host))
      for (int i = 0; i < at(host).ranks && std::ssize(hosts) < ranks; ++i) hosts.push_back(host);
  if (std::ssize(hosts) < ranks) hosts.clear();
  return hosts;
}

void Hosts::tell(int host, const Words& words) const {
  const Host& one = at(host);
  if (one.wire) one.wire->say(words);
}

void Hosts::tell_all(const Words& words) const {
  for (int host = 1; host < count(); ++host) tell(host, words);
}

void Hosts::add_to(std::vector<pollfd>& entries) const {
  door_.add_to(entries);
  for (const auto& wire : unknown_) entries.push_back(wire->to_poll());
  for (const Host& host : hosts_)
    if (host.wire) entries.push_back(host.wire->to_poll());
}

std::vector<Hosts::Event> Hosts::hear() {
  std::vector<Event> events;
  for (admission::Door::Entered& one : door_.admit()) {
    one.connection.say(MeetingMessage::Kind::welcome, one.welcome);
    if (unknown_.size() > kMostUnknown) unknown_.erase(unknown_.begin());
    unknown_.push_back(std::make_unique<HostWire>(std::move(one.connection)));
  }
  for (auto& wire : unknown_) {
    for (const Words& words : wire->hear()) {
      if (!wire) break;
      if (const auto host = take_in(wire, words)) events.push_back({.host = *host, .words = {"came"}});
      if (wire && !wire->is_gone() && !wire->has_to_send()) wire.reset();  // it was refused
    }
    if (wire && wire->is_gone()) wire.reset();
  }
  std::erase(unknown_, nullptr);
  for (int host = 1; host < count(); ++host) {
    auto& wire = hosts_[static_cast<std::size_t>(host)].wire;
    if (!wire) continue;
    for (Words& words : wire->hear()) events.push_back({.host = host, .words = std::move(words)});
    if (!wire->is_gone()) continue;
    wire.reset();
    events.push_back({.host = host, .words = {"lost"}});
  }
  return events;
}

std::optional<int> Hosts::take_in(std::unique_ptr<HostWire>& wire, const Words& words) {
  const auto introduction = introduction_in(words);
  if (!introduction) {
    wire->say({"refused", "it does not speak as this version of DeAR: install the same on all hosts"});
    return std::nullopt;
  }
  if (introduction->hosts != options_.hosts) {
    wire->say({"refused", fmt::format("it says --hosts {}, and the host that leads says --hosts {}",
                                      introduction->hosts, options_.hosts)});
    return std::nullopt;
  }
  Host host{.name = introduction->name,
            .address = introduction->address,
            .port = introduction->port,
            .ranks = introduction->ranks};
  // It takes the place of a lost one, its own if it can.
  const auto place_of = [&](bool its_own) {
    return std::find_if(hosts_.begin() + 1, hosts_.end(), [&](const Host& one) {
      return !one.wire && one.ranks == host.ranks && (!its_own || one.name == host.name);
    });
  };
  auto at = place_of(true);
  if (at == hosts_.end()) at = place_of(false);
  if (at == hosts_.end() && count() == options_.hosts) {
    wire->say({"refused", fmt::format("all {} hosts are there", options_.hosts)});
    return std::nullopt;
  }
  host.wire = std::move(wire);
  if (at == hosts_.end()) {
    hosts_.push_back(std::move(host));
    return count() - 1;
  }
  *at = std::move(host);
  return static_cast<int>(at - hosts_.begin());
}

bool Hosts::wait_for_room(int ranks, Deadline deadline) {
  while (hosts_of(ranks).empty()) {
    if (deadline.expired()) return false;
    std::vector<pollfd> files;
    add_to(files);
    sleep_on(files, deadline);
    hear();  // of a job that is over; who came is among the hosts
  }
  return true;
}

void Hosts::end(int code) {
  tell_all({"over", std::to_string(code)});
  const Deadline deadline = Deadline::after(kLastWords);
  const auto listens = [](const Host& host) { return host.wire != nullptr; };
  // Each ends its connection when it has heard it.
  while (std::any_of(hosts_.begin(), hosts_.end(), listens) && !deadline.expired()) {
    std::vector<pollfd> files;
    add_to(files);
    sleep_on(files, deadline);
    hear();
  }
}

// ---- the others

LeaderWire::LeaderWire(const HostsOptions& options, const std::string& address) : address_(address) {
  const Deadline deadline = Deadline::after(options.wait);
  const admission::Addresses addresses = addresses_of(options);
  bool found = false;
  Announcement waits(options);
  while (!found) {
    waits.make(
        fmt::format("waiting for the launcher that leads the job, at {} port {}", address_, options.port));
    for (const addrinfo* at = addresses.get(); at != nullptr && !found; at = at->ai_next) {
      address_ = text_of(at->ai_addr, at->ai_addrlen);
      found = visit(at->ai_addr, at->ai_addrlen, options, deadline);
    }
    if (found) break;
    if (deadline.expired())
      throw TimeoutError(fmt::format(
          "nobody at {} port {} proved within {:g} s to be the launcher that leads this job: start `dear "
          "launch` with the same --hosts and --meet, and the same DEAR_SECRET_FILE if any, on the host that "
          "has the address {}",
          address_, options.port, options.wait.count(), options.address));
    std::vector<pollfd> none;
    sleep_on(none, deadline);
  }
  held_ = hold_port(wire_->own_address());
  wire_->say(words_of(Introduction{.name = name_of_this_host(),
                                   .hosts = options.hosts,
                                   .ranks = options.ranks,
                                   .address = wire_->own_address(),
                                   .port = held_.port}));
}

bool LeaderWire::visit(const sockaddr* address, unsigned length, const HostsOptions& options,
                       Deadline deadline) {
  os::FileDescriptor socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open() || (::connect(socket.get(), address, length) != 0 && errno != EINPROGRESS))
    return false;
  MeetingConnection connection(std::move(socket), admission::kLongestMessage);
  admission::Visit visit(key_of(options), 0, 1, options.hosts);
  const Deadline attempt = Deadline::after(kAttempt);
  while (!attempt.expired() && !deadline.expired()) {
    MeetingMessage message;
    switch (connection.receive(message)) {
      case MeetingConnection::Received::nothing_yet:
        if (!connection.send()) return false;
        connection.wait_ready(Deadline::after(kPause));
        continue;
      case MeetingConnection::Received::message:
        switch (visit.hear(message, connection)) {
          case admission::Visit::State::waiting:
            continue;
          case admission::Visit::State::welcome:
            wire_ = std::make_unique<HostWire>(std::move(connection));
            return true;
          default:
            return false;
        }
      default:
        return false;
    }
  }
  return false;
}

MetHosts meet_hosts(const HostsOptions& options) {
  const admission::Addresses addresses = addresses_of(options);
  std::string address;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    address = text_of(at->ai_addr, at->ai_addrlen);
    os::FileDescriptor listener = admission::listen_on(at->ai_addr, at->ai_addrlen);
    if (listener.is_open()) return {.hosts = std::make_unique<Hosts>(std::move(listener), options, address)};
    if (errno != EADDRNOTAVAIL && errno != EADDRINUSE)
      throw TransportError(
          with_errno(fmt::format("cannot listen at {} port {}", address, options.port), errno));
  }
  return {.leader = std::make_unique<LeaderWire>(options, address)};
}

}  // namespace dear::launch
