#include "dear/comm/gloo/meeting/host.h"

#include <algorithm>
#include <cerrno>
#include <list>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/admission/door.h"
#include "dear/base/admission/message.h"
#include "dear/base/vocabulary/error.h"

namespace dear::channels {
namespace {

using admission::Door;
using admission::kLongestMessage;
using admission::listen_on;
using admission::MeetingConnection;
using admission::MeetingMessage;
using Kind = MeetingMessage::Kind;

// How long rank 0 waits for the others to take what it said last.
constexpr std::chrono::duration<double> kSeeOff = std::chrono::seconds(1);
// How long it waits beyond the deadline for one to say whom it waits for.
constexpr std::chrono::seconds kComplaint{1};

// At the address by which the others know this host, so that no other network reaches it. A name may lead to
// an address that this host does not have itself, such as that of a service in front of it.
os::FileDescriptor listen_at(const MeetingOptions& options) {
  const Addresses addresses = addresses_of_master(options, SOCK_STREAM);
  const auto port = htons(static_cast<std::uint16_t>(options.master_port));
  const sockaddr_in6 any_six{.sin6_family = AF_INET6, .sin6_port = port};
  const sockaddr_in any_four{.sin_family = AF_INET, .sin_port = port};
  os::FileDescriptor listener;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    listener = listen_on(at->ai_addr, at->ai_addrlen);
    if (listener.is_open() || errno == EADDRINUSE) break;
  }
  if (!listener.is_open() && errno == EADDRNOTAVAIL)
    listener = listen_on(reinterpret_cast<const sockaddr*>(&any_six), sizeof any_six);
  if (!listener.is_open() && errno == EAFNOSUPPORT)
    listener = listen_on(reinterpret_cast<const sockaddr*>(&any_four), sizeof any_four);
  if (listener.is_open()) return listener;
  throw TransportError(with_errno(
      fmt::format("rank 0 cannot open port {} for the ranks to meet at, choose another MASTER_PORT",
                  options.master_port),
      errno));
}

class Host final : public Meeting {
 public:
  Host(const MeetingOptions& options, const std::vector<std::string>& messages)
      : options_(options),
        door_(std::in_place, listen_at(options), meeting_key(options), 0, options.size,
              static_cast<std::size_t>(options.size) * (kLongestMessage + 4)),
        messages_(static_cast<std::size_t>(options.size)) {
    messages_[0] = messages;
  }

  void gather() {
    while (!absent().empty()) {
      if (options_.deadline.expired()) refuse(Kind::timeout, absence());
      wait(options_.deadline);
      for (Door::Entered& entered : door_->admit()) seat(std::move(entered));
      for (Guest& guest : guests_) hear(guest);
      guests_.remove_if([](const Guest& guest) { return guest.gone; });
    }
    door_.reset();
    for (Guest& guest : guests_) {
      guest.connection.say(Kind::messages, admission::joined(messages_for(guest.rank)));
      guest.connection.send();
    }
    guests_.remove_if([](const Guest& guest) { return !guest.seated; });
    received_ = messages_for(0);
    messages_.clear();
  }

  void add_to(std::vector<pollfd>& entries) const override {
    for (const Guest& guest : guests_) entries.push_back(guest.connection.to_poll());
  }
  void check() override {
    for (Guest& guest : guests_) hear_of_connections(guest);
    guests_.remove_if([](const Guest& guest) { return guest.gone; });
  }
  void settle() override {
    const Deadline last(options_.deadline.at() + kComplaint);
    for (check(); !guests_.empty(); check()) {
      if (last.expired()) refuse(Kind::timeout, missing_connections());
      wait(last);
    }
  }
  [[noreturn]] void fail(const Error& error) override {
    if (!is_refused_) tell(kind_of(error), error.what());
    throw;
  }

 private:
  struct Guest {
    MeetingConnection connection;
    int rank;
    bool seated = true;  // else it has only to hear why not
    bool gone = false;
  };

  std::string absence() {
    const std::vector<int> missing = absent();
    std::string text = fmt::format(
        "of {} ranks, {} {} did not come in {:.3g} s: start them all, with the same MASTER_ADDR, MASTER_PORT "
        "and WORLD_SIZE",
        options_.size, missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "),
        std::chrono::duration<double>(SteadyClock::now() - began_).count());
    if (door_ && door_->turned_away() > 0)
      text += fmt::format("; {} that came could not prove to be of this job, its restart and its secret",
                          door_->turned_away());
    return text + note_;
  }

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

  // Until something comes, or can go where something waits for it.
  void wait(Deadline deadline) {
    std::vector<pollfd> entries;
    if (door_) door_->add_to(entries);
    for (const Guest& guest : guests_) entries.push_back(guest.connection.to_poll());
    admission::poll_until(entries, deadline);
  }

  // Takes in who has proved to be of this job.
  void seat(Door::Entered entered) {
    const int rank = entered.rank;
    const auto same = [&](const Guest& other) { return other.seated && other.rank == rank; };
    std::string wrong;
    if (entered.size != options_.size) {
      wrong = fmt::format("rank {} was told of {} ranks, rank 0 of {}: give all ranks the same WORLD_SIZE",
                          rank, entered.size, options_.size);
    } else if (rank <= 0 || rank >= options_.size || std::any_of(guests_.begin(), guests_.end(), same)) {
      wrong = fmt::format(
          "two processes have rank {}: give each a RANK of its own, and each job a MASTER_PORT of its own",
          rank);
    }
    Guest& guest = guests_.emplace_back(std::move(entered.connection), rank, wrong.empty());
    guest.connection.say(Kind::welcome, entered.welcome);
    guest.connection.send();
    if (wrong.empty()) return;
    if (!options_.secret.empty() || !options_.job.empty()) refuse(Kind::mismatch, wrong);
    // Anybody may say so who knows nothing of the job.
    note_ = "; " + wrong;
    guest.connection.say(Kind::mismatch, wrong);
    guest.connection.send();
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
          if (guest.seated) {
            refuse(Kind::lost, fmt::format("rank {} ended while the ranks were meeting: see what it printed",
                                           guest.rank));
          }
          return;
      }
    }
  }

  void answer(Guest& guest, const MeetingMessage& message) {
    const auto parts = admission::parted(message.text);
    switch (message.kind) {
      case Kind::messages:
        if (!guest.seated || !parts || parts->size() != messages_.size()) break;
        messages_[static_cast<std::size_t>(guest.rank)] = *parts;
        return;
      case Kind::ask:
        if (guest.seated) refuse(Kind::timeout, absence());  // it gives up
        break;
      default:
        break;
    }
    guest.gone = true;  // it speaks, but not as we do
  }

  // One that has its connections needs no word any more.
  void hear_of_connections(Guest& guest) {
    MeetingMessage message;
    guest.connection.send();
    switch (guest.connection.receive(message)) {
      case MeetingConnection::Received::nothing_yet:
        return;
      case MeetingConnection::Received::message:
        if (message.kind == Kind::settled) {
          guest.gone = true;
          return;
        }
        if (message.kind == Kind::timeout || message.kind == Kind::mismatch || message.kind == Kind::lost)
          refuse(message.kind, message.text);
        [[fallthrough]];
      case MeetingConnection::Received::foreign:
      case MeetingConnection::Received::closed:
        refuse(Kind::lost,
               fmt::format("rank {} ended while the ranks were connecting: see what it printed", guest.rank));
    }
  }

  [[nodiscard]] std::string missing_connections() const {
    std::vector<int> ranks;
    for (const Guest& guest : guests_) ranks.push_back(guest.rank);
    return fmt::format(
        "{} {} got no connection with some rank in time, though all ranks have met: see whether one is "
        "stopped, and whether the hosts reach each other",
        ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
  }

  // Ends the meeting for all who have come.
  [[noreturn]] void refuse(Kind kind, const std::string& why) {
    tell(kind, why);
    throw_told(kind, 0, why);
  }
  void tell(Kind kind, const std::string& why) {
    is_refused_ = true;
    door_.reset();
    for (Guest& guest : guests_) guest.connection.say(kind, why);
    see_off(Deadline::after(kSeeOff));
  }

  // A connection closed here with words of the other side unread takes along what is still on its way there.
  // So the others close first.
  void see_off(Deadline deadline) {
    MeetingMessage ignored;
    guests_.remove_if([](const Guest& guest) { return guest.gone; });
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
      if (!guests_.empty()) wait(deadline);
    }
  }

  const MeetingOptions options_;
  const SteadyTime began_ = SteadyClock::now();
  std::optional<Door> door_;  // until all have come
  std::string note_;          // of one that was told to go
  std::list<Guest> guests_;
  std::vector<std::vector<std::string>> messages_;  // of those who have come, until all have
  bool is_refused_ = false;
};

}  // namespace

void throw_told(admission::MeetingMessage::Kind kind, int rank, const std::string& why) {
  const std::string text =
      why.starts_with(fmt::format("rank {} ", rank)) ? why : fmt::format("rank {}: {}", rank, why);
  switch (kind) {
    case Kind::timeout:
      throw TimeoutError(text);
    case Kind::mismatch:
      throw MismatchError(text);
    default:
      throw TransportError(text);
  }
}

Kind kind_of(const Error& error) {
  if (dynamic_cast<const TimeoutError*>(&error) != nullptr) return Kind::timeout;
  return dynamic_cast<const MismatchError*>(&error) != nullptr ? Kind::mismatch : Kind::lost;
}

std::unique_ptr<Meeting> host_meeting(const MeetingOptions& options,
                                      const std::vector<std::string>& messages) {
  auto host = std::make_unique<Host>(options, messages);
  host->gather();
  return host;
}

}  // namespace dear::channels
