#include "dear/comm/gloo/meeting/meeting.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/admission/door.h"
#include "dear/base/admission/message.h"
#include "dear/base/os/file_descriptor.h"
#include "dear/base/os/held_name.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/base/vocabulary/say.h"
#include "dear/comm/gloo/meeting/host.h"

namespace dear::channels {
namespace {

using admission::kLongestMessage;
using admission::MeetingConnection;
using admission::MeetingMessage;
using admission::Visit;
using Kind = MeetingMessage::Kind;

constexpr std::chrono::milliseconds kRetry{20};
// How often a name that is not known is asked for.
constexpr std::chrono::milliseconds kNameRetry{250};
// How long rank 0 waits for one before it at its place.
constexpr std::chrono::duration<double> kHeldPlace = std::chrono::seconds(1);
// How long a rank that has come waits for rank 0 to say who has not.
constexpr std::chrono::duration<double> kQuestion = std::chrono::seconds(1);

void pause_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
  poll(nullptr, 0, static_cast<int>(std::min(left, kRetry).count()));
}

class Guest final : public Meeting {
 public:
  explicit Guest(const MeetingOptions& options)
      : options_(options), addresses_(addresses_of_master(options, SOCK_STREAM)) {}

  void gather(const std::vector<std::string>& messages) {
    host_.emplace(find_host());
    host_->say(Kind::messages, admission::joined(messages));
    auto message = next(*host_, options_.deadline);
    if (!message) {
      host_->say(Kind::ask);
      message = next(*host_, Deadline::after(kQuestion));
    }
    if (message) {
      received_ = messages_in(*message);
      return;
    }
    throw TimeoutError(
        fmt::format("rank {} came to {} port {} and heard nothing from rank 0 in {:.3g} s: see whether "
                    "that rank is stopped",
                    options_.rank, options_.master_address, options_.master_port, allowance()));
  }

  void add_to(std::vector<pollfd>& entries) const override { entries.push_back(host_->to_poll()); }
  void check() override {
    MeetingMessage message;
    switch (host_->receive(message)) {
      case MeetingConnection::Received::nothing_yet:
        return;
      case MeetingConnection::Received::message:
        is_told_ = true;
        throw_told(message.kind, options_.rank, message.text);
      default:
        is_told_ = true;
        throw_lost("connecting");
    }
  }
  // Rank 0 reads it, or has ended, which the connections to it tell.
  void settle() override {
    host_->say(Kind::settled);
    while (host_->send() && host_->has_to_send() && !options_.deadline.expired())
      host_->wait_ready(options_.deadline);
    host_.reset();
  }
  [[noreturn]] void fail(const Error& error) override {
    if (!is_told_) {
      host_->say(kind_of(error), error.what());
      const auto message = next(*host_, Deadline::after(kQuestion));
      if (message && message->text != error.what()) throw_told(message->kind, options_.rank, message->text);
    }
    throw;
  }

 private:
  [[noreturn]] void throw_lost(const char* meanwhile) const {
    throw TransportError(
        fmt::format("rank {} lost rank 0 while the ranks were {}: that rank ended, see what it printed",
                    options_.rank, meanwhile));
  }
  [[nodiscard]] double allowance() const {
    return std::chrono::duration<double>(options_.deadline.at() - began_).count();
  }

  // Connected to rank 0, and welcome. Until rank 0 has come nobody may answer, or something that ends.
  MeetingConnection find_host() {
    for (;;) {
      for (const addrinfo* at = addresses_.get(); at != nullptr; at = at->ai_next) {
        os::FileDescriptor socket = connected_to(*at);
        if (!socket.is_open()) continue;
        MeetingConnection host(std::move(socket), kLongestMessage);
        if (!is_welcome(host)) continue;
        host.allow(static_cast<std::size_t>(options_.size) * (kLongestMessage + 4));
        return host;
      }
      if (options_.deadline.expired()) {
        throw TimeoutError(
            fmt::format("rank {} did not find rank 0 at {} port {} in {:.3g} s ({}): start all ranks, with "
                        "the same MASTER_ADDR and MASTER_PORT",
                        options_.rank, options_.master_address, options_.master_port, allowance(), last_));
      }
      pause_until(options_.deadline);
    }
  }

  os::FileDescriptor connected_to(const addrinfo& address) {
    os::FileDescriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = socket.is_open() ? 0 : errno;
    if (error == 0 && ::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS) {
      pollfd entry{.fd = socket.get(), .events = POLLOUT};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(options_.deadline.remaining());
      // A host that drops what comes for it says nothing for minutes.
      poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 2'000)));
      socklen_t length = sizeof error;
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      if (error == 0 && (entry.revents & POLLOUT) == 0) error = ETIMEDOUT;
    }
    if (error == 0) return socket;
    note(std::strerror(error));
    return {};
  }

  void note(const char* reason) {
    if (!is_refused_) last_ = reason;
  }

  bool is_welcome(MeetingConnection& host) {
    Visit visit(key_, 0, options_.rank, options_.size);
    MeetingMessage message;
    for (;;) {
      host.send();
      switch (host.receive(message)) {
        case MeetingConnection::Received::message:
          switch (visit.hear(message, host)) {
            case Visit::State::welcome:
              return true;
            case Visit::State::waiting:
              continue;
            case Visit::State::refused:
              last_ = "rank 0 there is of another job, restart or rendezvous, or has another secret";
              is_refused_ = true;
              return false;
            case Visit::State::foreign:
              last_ = "what answers there cannot prove to be rank 0 of this job";
              is_refused_ = true;
              return false;
          }
          return false;
        case MeetingConnection::Received::foreign:
          throw TransportError(
              fmt::format("rank {} found something else than rank 0 of a job of DeAR at {} port {}: choose "
                          "another MASTER_PORT",
                          options_.rank, options_.master_address, options_.master_port));
        case MeetingConnection::Received::closed:
          note("what answers there ends the connection");
          return false;
        case MeetingConnection::Received::nothing_yet:
          note("what answers there says nothing");
          if (options_.deadline.expired()) return false;
          host.wait_ready(options_.deadline);
      }
    }
  }

  std::optional<MeetingMessage> next(MeetingConnection& host, Deadline deadline) const {
    MeetingMessage message;
    for (;;) {
      host.send();
      switch (host.receive(message)) {
        case MeetingConnection::Received::message:
          return message;
        case MeetingConnection::Received::nothing_yet:
          if (deadline.expired()) return std::nullopt;
          host.wait_ready(deadline);
          break;
        default:
          throw_lost("meeting");
      }
    }
  }

  [[nodiscard]] std::vector<std::string> messages_in(const MeetingMessage& message) const {
    if (message.kind != Kind::messages) throw_told(message.kind, options_.rank, message.text);
    auto messages = admission::parted(message.text);
    if (!messages || messages->size() != static_cast<std::size_t>(options_.size)) {
      throw TransportError(fmt::format(
          "rank {} does not understand rank 0: run the same build of DeAR on all hosts", options_.rank));
    }
    return *std::move(messages);
  }

  const MeetingOptions options_;
  const SteadyTime began_ = SteadyClock::now();
  const Addresses addresses_;
  const std::string key_ = meeting_key(options_);
  bool is_refused_ = false;
  std::string last_ = "nothing answers";  // why it has not found rank 0 yet
  std::optional<MeetingConnection> host_;
  bool is_told_ = false;  // rank 0 has said what failed, or cannot
};

// Of one rank.
class Alone final : public Meeting {
 public:
  explicit Alone(const std::vector<std::string>& messages) { received_ = messages; }
  void add_to(std::vector<pollfd>&) const override {}
  void check() override {}
  void settle() override {}
  [[noreturn]] void fail(const Error&) override { throw; }
};

}  // namespace

// The name of a host that is being started may be known later than this rank is, as in Kubernetes.
Addresses addresses_of_master(const MeetingOptions& options, int type) {
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = type};
  const std::string port = std::to_string(options.master_port);
  const Deadline unknown = Deadline::after(options.deadline.remaining() / 2);
  for (bool told = false;; told = true) {
    addrinfo* found = nullptr;
    const int error = getaddrinfo(options.master_address.c_str(), port.c_str(), &hints, &found);
    if (error == 0) return {found, freeaddrinfo};
    const bool may_come = error == EAI_AGAIN || error == EAI_NONAME;
    if (!may_come || (error == EAI_AGAIN ? options.deadline : unknown).expired()) {
      throw TransportError(fmt::format("rank {} cannot find the host {} of rank 0: {} (check MASTER_ADDR)",
                                       options.rank, options.master_address, gai_strerror(error)));
    }
    if (!told)
      tell({}, fmt::format("rank {} asks again for the host {} of rank 0: {}", options.rank,
                           printable(options.master_address), gai_strerror(error)));
    poll(nullptr, 0, static_cast<int>(kNameRetry.count()));
  }
}

std::string meeting_key(const MeetingOptions& options) {
  return admission::derived_key(admission::job_key(options.secret, options.job), "meeting", "");
}

void check_meeting(const MeetingOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    throw ConfigError(fmt::format("there is no rank {} among {} ranks", options.rank, options.size));
  }
  if (options.master_address.empty() || options.master_port < 1 || options.master_port > 65'535) {
    throw ConfigError(fmt::format(
        "ranks cannot meet at \"{}\" port {}: set MASTER_ADDR to the host of rank 0 and MASTER_PORT "
        "to a free port on it (1 to 65535), alike on all ranks",
        options.master_address, options.master_port));
  }
}

std::string own_address(const MeetingOptions& options) {
  check_meeting(options);
  const Addresses addresses = addresses_of_master(options, SOCK_DGRAM);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    // Connecting a datagram socket sends nothing: it only picks a way.
    const os::FileDescriptor socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    char text[NI_MAXHOST] = {};
    if (socket.is_open() && ::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::getsockname(socket.get(), generic, &length) == 0 &&
        ::getnameinfo(generic, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
      return text;
    }
  }
  throw TransportError(
      fmt::format("rank {} has no way to the host {} of rank 0: check MASTER_ADDR and this host's network",
                  options.rank, options.master_address));
}

std::unique_ptr<Meeting> open_meeting(const MeetingOptions& options,
                                      const std::vector<std::string>& messages) {
  check_meeting(options);
  if (messages.size() != static_cast<std::size_t>(options.size)) {
    throw ConfigError(
        fmt::format("rank {} has {} messages for {} ranks", options.rank, messages.size(), options.size));
  }
  if (options.size == 1) return std::make_unique<Alone>(messages);
  if (options.rank == 0) return host_meeting(options, messages);
  auto guest = std::make_unique<Guest>(options);
  guest->gather(messages);
  return guest;
}

std::vector<std::string> meet(const MeetingOptions& options, const std::vector<std::string>& messages) {
  const auto meeting = open_meeting(options, messages);
  meeting->settle();
  return meeting->messages();
}

std::shared_ptr<const void> hold_place(const MeetingOptions& options) {
  const Addresses addresses = addresses_of_master(options, SOCK_STREAM);
  char host[NI_MAXHOST] = {};
  ::getnameinfo(addresses->ai_addr, addresses->ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  std::string name = "dear-place-";
  const std::string key =
      admission::derived_key(admission::job_key(options.secret, options.job), "place",
                             fmt::format("{} {} {}", ::geteuid(), host, options.master_port));
  for (const char byte : key.substr(0, 16)) name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  // A job that ends lets go within moments.
  auto held =
      os::hold_name(name, Deadline(std::min(options.deadline.at(), Deadline::after(kHeldPlace).at())));
  if (held) return held;
  throw MismatchError(fmt::format(
      "rank 0 of another job, which still runs, has met its ranks at {} port {}, maybe one of this "
      "job among them: end both, and give each job a MASTER_PORT of its own",
      options.master_address, options.master_port));
}

}  // namespace dear::channels
