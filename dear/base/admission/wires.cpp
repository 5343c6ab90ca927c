#include "dear/base/admission/wires.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ifaddrs.h>
#include <list>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <sys/un.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/admission/door.h"
#include "dear/base/vocabulary/error.h"

namespace dear::admission {
namespace {

constexpr std::chrono::milliseconds kPause{20};
// How often a rank that is waited for is asked whether it still listens.
constexpr std::chrono::milliseconds kQuestion{200};

struct SocketAddress {
  sockaddr_storage value{};
  socklen_t length = 0;  // 0 for none

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }
};

// Without a name behind kLocal the kernel chooses one.
SocketAddress numeric(const std::string& address, int port) {
  SocketAddress result;
  if (address.starts_with(Wires::kLocal)) {
    auto& local = reinterpret_cast<sockaddr_un&>(result.value);
    if (address.size() > sizeof local.sun_path) return result;
    local.sun_family = AF_UNIX;
    address.copy(local.sun_path + 1, std::string::npos, 1);
    result.length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + (address.size() > 1 ? address.size() : 0));
    return result;
  }
  addrinfo* found = nullptr;
  const addrinfo hints{.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return result;
  const Addresses owner(found, freeaddrinfo);
  std::memcpy(&result.value, found->ai_addr, found->ai_addrlen);
  result.length = found->ai_addrlen;
  return result;
}

// Where a socket listens; nothing where the kernel does not say so.
std::optional<Wires::Place> place_of(int socket, const std::string& address) {
  SocketAddress bound;
  bound.length = sizeof bound.value;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound.value), &bound.length) != 0)
    return std::nullopt;
  if (address.starts_with(Wires::kLocal)) {
    const auto& local = reinterpret_cast<const sockaddr_un&>(bound.value);
    constexpr std::size_t kName = offsetof(sockaddr_un, sun_path) + 1;
    if (bound.length <= kName) return std::nullopt;
    return Wires::Place{.address = Wires::kLocal + std::string(local.sun_path + 1, bound.length - kName)};
  }
  char port[NI_MAXSERV] = {};
  if (::getnameinfo(bound.get(), bound.length, nullptr, 0, port, sizeof port, NI_NUMERICSERV) != 0)
    return std::nullopt;
  return Wires::Place{.address = address, .port = std::atoi(port)};
}

// One connection to a rank below, begun anew where it ends before it stands.
class Outgoing {
 public:
  Outgoing(const Wires::Options& options, int host, const Wires::Place& place)
      : options_(options), host_(host), place_(place), address_(numeric(place.address, place.port)) {
    if (address_.length == 0) {
      throw TransportError(
          fmt::format("rank {} does not understand rank {}: run the same build of DeAR on all hosts",
                      options.rank, host));
    }
  }

  [[nodiscard]] int host() const { return host_; }
  [[nodiscard]] const std::optional<MeetingConnection>& connection() const { return connection_; }

  // Whether it stands. Never waits.
  bool advance() {
    if (!connection_) {
      if (!again_.expired()) return false;
      begin();
    }
    MeetingMessage message;
    for (;;) {
      connection_->send();
      switch (connection_->receive(message)) {
        case MeetingConnection::Received::nothing_yet:
          return false;
        case MeetingConnection::Received::message:
          switch (visit_->hear(message, *connection_)) {
            case Visit::State::waiting:
              continue;
            case Visit::State::welcome:
              return true;
            default:
              break;
          }
          break;
        default:
          break;
      }
      if (connection_->is_refused()) throw_refused(ECONNREFUSED);
      connection_.reset();
      again_ = Deadline::after(kPause);
      return false;
    }
  }
  Wires::Wire release() {
    auto [socket, kept_out] = connection_->release();
    return {.socket = std::move(socket), .kept_out = std::move(kept_out)};
  }

 private:
  // Its port is open until it has all connections, so whoever refuses has ended.
  [[noreturn]] void throw_refused(int error) const {
    throw TransportError(with_errno(
        fmt::format(
            "rank {} cannot connect to rank {} at {} port {}: see whether that rank ended, and whether "
            "the hosts reach each other",
            options_.rank, host_, place_.address, place_.port),
        error));
  }
  void begin() {
    os::FileDescriptor socket(
        ::socket(address_.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = socket.is_open() ? 0 : errno;
    if (error == 0 && ::connect(socket.get(), address_.get(), address_.length) != 0) error = errno;
    if (error == 0 && !is_of_this_user(socket.get())) error = EACCES;
    if (error != 0 && error != EINPROGRESS && error != EAGAIN) throw_refused(error);
    connection_.emplace(std::move(socket), kLongestMessage);
    visit_.emplace(options_.key, host_, options_.rank, options_.size);
  }

  const Wires::Options& options_;
  int host_;
  const Wires::Place& place_;
  SocketAddress address_;
  std::optional<MeetingConnection> connection_;
  std::optional<Visit> visit_;
  Deadline again_{SteadyClock::now()};
};

// Asks whether a rank that has not come still listens. It does until it has all connections, so one that does
// not has ended.
class Question {
 public:
  Question(int peer, const Wires::Place& place) : peer_(peer) {
    const SocketAddress address = numeric(place.address, place.port);
    if (address.length == 0) return;  // it listens nowhere
    socket_ =
        os::FileDescriptor(::socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket_.is_open() && ::connect(socket_.get(), address.get(), address.length) != 0) error_ = errno;
  }

  [[nodiscard]] int peer() const { return peer_; }
  [[nodiscard]] pollfd to_poll() const { return {.fd = socket_.get(), .events = 0}; }  // an error wakes it
  bool is_refused() {
    if (error_ != ECONNREFUSED && socket_.is_open()) {
      socklen_t length = sizeof error_;
      ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error_, &length);
    }
    return error_ == ECONNREFUSED;
  }

 private:
  int peer_;
  os::FileDescriptor socket_;
  int error_ = 0;
};

}  // namespace

std::string address_of_interface(const std::string& name, int rank) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) all = nullptr;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family || name != at->ifa_name) continue;
      const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      char text[NI_MAXHOST] = {};
      if (::getnameinfo(at->ifa_addr, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
        return text;
    }
  }
  throw ConfigError(
      fmt::format("rank {} finds no address of the network interface {} on its host: set GLOO_SOCKET_IFNAME "
                  "to one of this "
                  "host that has an address, or leave it out",
                  rank, name));
}

Wires::Wires(const std::string& address, int rank) {
  const SocketAddress any_port = numeric(address, 0);
  if (any_port.length > 0) listener_ = listen_on(any_port.get(), any_port.length);
  const auto place = listener_.is_open() ? place_of(listener_.get(), address) : std::nullopt;
  if (!place) {
    throw TransportError(with_errno(
        fmt::format("rank {} cannot listen on its address {} for the other ranks", rank, address), errno));
  }
  kept_out_ = os::NotInChildren(listener_.get());
  place_ = *place;
}

std::vector<Wires::Wire> Wires::connect(const Options& options, const std::vector<Place>& places) {
  std::vector<Wire> wires(static_cast<std::size_t>(options.size));
  std::vector<std::unique_ptr<Outgoing>> outgoing;
  std::vector<bool> wanted(static_cast<std::size_t>(options.size), options.peers.empty());
  for (const int peer : options.peers) wanted[static_cast<std::size_t>(peer)] = true;
  wanted[static_cast<std::size_t>(options.rank)] = false;
  for (int host = 0; host < options.rank; ++host)
    if (wanted[static_cast<std::size_t>(host)])
      outgoing.push_back(std::make_unique<Outgoing>(options, host, places[static_cast<std::size_t>(host)]));
  std::optional<Door> door;
  if (listener_.is_open())
    door.emplace(std::move(listener_), options.key, options.rank, options.size, std::size_t{0});
  auto missing = std::count(wanted.begin(), wanted.end(), true);
  const auto connected = [&](int peer) { return wires[static_cast<std::size_t>(peer)].socket.is_open(); };
  std::list<Question> questions;
  Deadline next_question = Deadline::after(kQuestion);
  while (missing > 0) {
    for (Door::Entered& entered : door ? door->admit() : std::vector<Door::Entered>()) {
      const int peer = entered.rank;
      if (entered.size != options.size || peer <= options.rank || peer >= options.size ||
          !wanted[static_cast<std::size_t>(peer)])
        continue;
      entered.connection.say(MeetingMessage::Kind::welcome, entered.welcome);
      // So short a text on a connection that just began is sent at once, or the connection broke.
      if (!entered.connection.send() || entered.connection.has_to_send()) continue;
      auto [socket, kept_out] = entered.connection.release();
      if (!connected(peer)) --missing;  // else the peer began anew
      wires[static_cast<std::size_t>(peer)] = {.socket = std::move(socket), .kept_out = std::move(kept_out)};
    }
    std::erase_if(outgoing, [&](const auto& one) {
      if (!one->advance()) return false;
      wires[static_cast<std::size_t>(one->host())] = one->release();
      --missing;
      return true;
    });
    if (missing == 0) break;
    if (options.monitor != nullptr) options.monitor->check();
    for (Question& question : questions) {
      if (!connected(question.peer()) && question.is_refused())
        throw TransportError(fmt::format("rank {} waits for rank {}, which ended while the ranks connected",
                                         options.rank, question.peer()));
    }
    if (options.monitor == nullptr && next_question.expired()) {
      questions.clear();
      for (int peer = options.rank + 1; peer < options.size; ++peer)
        if (const auto at = static_cast<std::size_t>(peer); wanted[at] && !connected(peer))
          questions.emplace_back(peer, places[at]);
      next_question = Deadline::after(kQuestion);
    }
    if (options.deadline.expired()) {
      std::vector<int> silent;
      for (int peer = 0; peer < options.size; ++peer)
        if (wanted[static_cast<std::size_t>(peer)] && !connected(peer)) silent.push_back(peer);
      throw TimeoutError(
          fmt::format("rank {} got no connection with rank {} in time, though all ranks have met: see "
                      "whether that rank is "
                      "stopped, and whether the hosts reach each other",
                      options.rank, fmt::join(silent, ", ")));
    }
    std::vector<pollfd> entries;
    if (door) door->add_to(entries);
    bool again = false;
    for (const auto& one : outgoing) {
      again = again || !one->connection();
      if (one->connection()) entries.push_back(one->connection()->to_poll());
    }
    for (const Question& question : questions) entries.push_back(question.to_poll());
    if (options.monitor != nullptr) options.monitor->add_to(entries);
    SteadyTime until = options.deadline.at();
    if (again) until = std::min(until, Deadline::after(kPause).at());
    if (options.monitor == nullptr) until = std::min(until, next_question.at());
    poll_until(entries, Deadline(until));
  }
  return wires;
}

}  // namespace dear::admission
