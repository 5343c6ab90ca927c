#include "dear/comm/gloo/meeting/host.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <list>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/gloo/meeting/message.h"

namespace dear::channels {
namespace {

using Kind = MeetingMessage::Kind;

// How long rank 0 waits for the others to take what it said last.
constexpr std::chrono::duration<double> kSeeOff = std::chrono::seconds(1);

os::FileDescriptor listening_on(int family, int port) {
  os::FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return socket;
  const int on = 1;
  const int off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // of connections that have ended
  if (family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_in6 six{.sin6_family = AF_INET6, .sin6_port = htons(static_cast<std::uint16_t>(port))};
  sockaddr_in four{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
  const bool is_six = family == AF_INET6;
  const auto* const address =
      is_six ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
  const socklen_t length = is_six ? sizeof six : sizeof four;
  if (::bind(socket.get(), address, length) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) return {};
  return socket;
}

// Every address of this host, by IPv6 and IPv4 where it has both.
os::FileDescriptor listen_at(const MeetingOptions& options) {
  for (const int family : {AF_INET6, AF_INET}) {
    os::FileDescriptor listener = listening_on(family, options.master_port);
    if (listener.is_open()) return listener;
    if (errno == EADDRINUSE) break;
  }
  throw TransportError(with_errno(
      fmt::format("rank 0 cannot open port {} for the ranks to meet at, choose another MASTER_PORT",
                  options.master_port),
      errno));
}

std::string absence(const MeetingOptions& options, const std::vector<int>& absent, SteadyTime began) {
  return fmt::format(
      "of {} ranks, {} {} did not come in {:.3g} s: start them all, with the same MASTER_ADDR, MASTER_PORT "
      "and WORLD_SIZE",
      options.size, absent.size() == 1 ? "rank" : "ranks", fmt::join(absent, ", "),
      std::chrono::duration<double>(SteadyClock::now() - began).count());
}

class Host {
 public:
  Host(const MeetingOptions& options, const std::vector<std::string>& messages)
      : options_(options),
        listener_(listen_at(options)),
        longest_(static_cast<std::size_t>(options.size) * (kLongestMessage + 4)),
        messages_(static_cast<std::size_t>(options.size)) {
    messages_[0] = messages;
  }

  std::vector<std::string> gather() {
    while (!absent().empty()) {
      if (options_.deadline.expired()) refuse(Kind::timeout, absence(options_, absent(), began_));
      wait(listener_.get(), options_.deadline);
      accept_guests();
      for (Guest& guest : guests_) hear(guest);
      guests_.remove_if([](const Guest& guest) { return guest.gone; });
    }
    listener_.close();
    guests_.remove_if([](const Guest& guest) { return guest.rank < 0; });
    for (Guest& guest : guests_) guest.connection.say(Kind::messages, joined(messages_for(guest.rank)));
    see_off(options_.deadline);
    return messages_for(0);
  }

 private:
  struct Guest {
    MeetingConnection connection;
    int rank = -1;  // until it says
    bool gone = false;
  };

  [[nodiscard]] std::vector<int> absent() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < options_.size; ++rank) {
      if (messages_[static_cast<std::size_t>(rank)].empty()) ranks.push_back(rank);
    }
    return ranks;
  }
  [[nodiscard]] std::vector<std::string> messages_for(int rank) const {
    std::vector<std::string> all;
    for (const auto& of_one : messages_) all.push_back(of_one[static_cast<std::size_t>(rank)]);
    return all;
  }

  // Until something comes, or can go where something waits for it. `listener`: -1 for none.
  void wait(int listener, Deadline deadline) {
    std::vector<pollfd> entries{{.fd = listener, .events = POLLIN}};
    for (const Guest& guest : guests_) {
      const int events = guest.connection.has_to_send() ? POLLIN | POLLOUT : POLLIN;
      entries.push_back({.fd = guest.connection.get(), .events = static_cast<short>(events)});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
    poll(entries.data(), entries.size(), static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
  }

  void accept_guests() {
    for (;;) {
      os::FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.is_open()) return;
      guests_.push_back({.connection = MeetingConnection(std::move(socket), longest_)});
    }
  }

  void hear(Guest& guest) {
    MeetingMessage message;
    for (;;) {
      switch (guest.connection.receive(message)) {
        case MeetingConnection::Received::message:
          answer(guest, message);
          if (guest.gone) return;
          break;
        case MeetingConnection::Received::nothing_yet:
          guest.connection.send();
          return;
        case MeetingConnection::Received::foreign:  // whatever it is, it is none of us
        case MeetingConnection::Received::closed:
          guest.gone = true;
          if (guest.rank >= 0) {
            refuse(Kind::lost, fmt::format("rank {} ended while the ranks were meeting: see what it printed",
                                           guest.rank));
          }
          return;
      }
    }
  }

  void answer(Guest& guest, const MeetingMessage& message) {
    const auto parts = parted(message.text);
    switch (message.kind) {
      case Kind::hello:
        if (!parts || parts->size() != 3) break;
        return admit(guest, (*parts)[0], (*parts)[1], (*parts)[2]);
      case Kind::messages:
        if (guest.rank < 0 || !parts || parts->size() != messages_.size()) break;
        messages_[static_cast<std::size_t>(guest.rank)] = *parts;
        return;
      case Kind::ask:
        refuse(Kind::timeout, absence(options_, absent(), began_));  // it gives up
      default:
        break;
    }
    guest.gone = true;  // it speaks, but not as we do
  }

  void admit(Guest& guest, const std::string& rank_text, const std::string& size_text,
             const std::string& job) {
    const int rank = std::atoi(rank_text.c_str());
    const int size = std::atoi(size_text.c_str());
    if (job != options_.job && !job.empty() && !options_.job.empty()) {
      guest.connection.say(
          Kind::mismatch,
          fmt::format("it belongs to another job ({}) than rank 0 there ({}): give each job a "
                      "MASTER_PORT of its own",
                      job, options_.job));
      guest.connection.send();
      guest.gone = true;
      return;
    }
    if (size != options_.size) {
      guest.rank = rank;
      refuse(Kind::mismatch,
             fmt::format("rank {} was told of {} ranks, rank 0 of {}: give all ranks the same WORLD_SIZE",
                         rank, size, options_.size));
    }
    const auto same = [&](const Guest& other) { return other.rank == rank; };
    if (rank <= 0 || rank >= options_.size || std::any_of(guests_.begin(), guests_.end(), same)) {
      guest.rank = rank;
      refuse(Kind::mismatch, fmt::format("two processes have rank {}: give each a RANK of its own, and each "
                                         "job a MASTER_PORT of its own",
                                         rank));
    }
    guest.rank = rank;
    guest.connection.say(Kind::welcome);
  }

  // Ends the meeting for all who have come.
  [[noreturn]] void refuse(Kind kind, const std::string& why) {
    listener_.close();
    for (Guest& guest : guests_) {
      if (guest.rank >= 0 && !guest.gone) guest.connection.say(kind, why);
    }
    see_off(Deadline::after(kSeeOff));
    throw_told(kind, 0, why);
  }

  // A connection closed here with words of the other side unread takes along what is still on its way there.
  // So the others close first.
  void see_off(Deadline deadline) {
    MeetingMessage ignored;
    guests_.remove_if([](const Guest& guest) { return guest.gone || guest.rank < 0; });
    while (!guests_.empty() && !deadline.expired()) {
      for (Guest& guest : guests_) {
        const bool had_to_send = guest.connection.has_to_send();
        guest.gone = !guest.connection.send();
        if (had_to_send && !guest.connection.has_to_send()) guest.connection.end_sending();
        for (auto received = MeetingConnection::Received::message;
             received == MeetingConnection::Received::message;) {
          received = guest.connection.receive(ignored);
          guest.gone = guest.gone || received == MeetingConnection::Received::closed ||
                       received == MeetingConnection::Received::foreign;
        }
      }
      guests_.remove_if([](const Guest& guest) { return guest.gone; });
      if (!guests_.empty()) wait(-1, deadline);
    }
  }

  const MeetingOptions& options_;
  const SteadyTime began_ = SteadyClock::now();
  os::FileDescriptor listener_;
  const std::size_t longest_;
  std::list<Guest> guests_;
  std::vector<std::vector<std::string>> messages_;  // of those who have come
};

}  // namespace

void throw_told(MeetingMessage::Kind kind, int rank, const std::string& why) {
  const std::string text = fmt::format("rank {}: {}", rank, why);
  switch (kind) {
    case Kind::timeout:
      throw TimeoutError(text);
    case Kind::mismatch:
      throw MismatchError(text);
    default:
      throw TransportError(text);
  }
}

std::vector<std::string> host_meeting(const MeetingOptions& options,
                                      const std::vector<std::string>& messages) {
  return Host(options, messages).gather();
}

}  // namespace dear::channels
