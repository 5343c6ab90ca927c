#include "dear/comm/shm/meeting.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <poll.h>
#include <time.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/os/held_name.h"
#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/shm/control.h"
#include "dear/comm/shm/socket.h"

namespace dear::backends {
namespace {

constexpr auto kRetry = std::chrono::milliseconds(10);
constexpr auto kHeldPlace = std::chrono::seconds(1);  // for a rank 0 before to end

// The channel of rank 0, which gives segments to the others.
class HostChannel final : public SegmentChannel {
 public:
  HostChannel(std::vector<Socket> guests, std::shared_ptr<const void> held)
      : guests_(std::move(guests)), held_(std::move(held)) {}

  // A guest that is gone is found by the barrier that follows.
  void give(const std::shared_ptr<Segment>& segment) override {
    Message message;
    message.kind = Message::Kind::segment;
    for (const Socket& guest : guests_) {
      guest.send(message, {segment->file()});
    }
  }
  std::shared_ptr<Segment> take(std::int64_t /*bytes*/, Deadline /*deadline*/) override {
    throw TransportError("rank 0 creates the segments itself");
  }

 private:
  std::vector<Socket> guests_;
  std::shared_ptr<const void> held_;
};

// Without it two jobs that are given one rendezvous may exchange their ranks.
std::shared_ptr<const void> hold(const ShmOptions& options) {
  const std::uint64_t rendezvous = Digest().add(options.rendezvous).value();
  const Deadline soon(std::min(options.deadline.at(), Deadline::after(kHeldPlace).at()));
  if (auto held = os::hold_name(fmt::format("dear-met-{}-{:x}", geteuid(), rendezvous), soon)) return held;
  throw MismatchError(
      "rank 0 of another job, which still runs, has met its ranks at the rendezvous of this one, maybe one "
      "of "
      "this job among them: end both, and give each job a MASTER_PORT or DEAR_RENDEZVOUS of its own");
}

class GuestChannel final : public SegmentChannel {
 public:
  explicit GuestChannel(Socket host) : host_(std::move(host)) {}

  void give(const std::shared_ptr<Segment>& /*segment*/) override {
    throw TransportError("only rank 0 creates segments");
  }
  std::shared_ptr<Segment> take(std::int64_t bytes, Deadline deadline) override {
    Message message;
    std::vector<os::FileDescriptor> files;
    for (;;) {
      const Socket::Received received = host_.receive(message, files);
      if (received == Socket::Received::message && message.kind == Message::Kind::segment &&
          files.size() == 1) {
        return Segment::map(std::move(files.front()), bytes);
      }
      if (received != Socket::Received::nothing_yet) {
        throw TransportError("shared memory did not arrive from rank 0 (see ulimit -n)");
      }
      if (deadline.expired()) {
        throw TimeoutError("shared memory did not arrive from rank 0 in time");
      }
      host_.wait_readable(deadline);
    }
  }

 private:
  Socket host_;
};

class Clock {
 public:
  explicit Clock(Deadline deadline) : deadline_(deadline) {}
  [[nodiscard]] const Deadline& deadline() const { return deadline_; }
  [[nodiscard]] std::string allowance() const { return format_seconds(seconds_of(deadline_.at()) - begin_); }

 private:
  Deadline deadline_;
  double begin_ = now_seconds();
};

constexpr const char* kWhere =
    "were all {} started on this host with the same rendezvous? LOCAL_WORLD_SIZE says how many are on a host";

std::string absence(const Message& roster, const ShmOptions& options, const Clock& clock) {
  std::vector<int> absent;
  for (int rank = 0; rank < options.size; ++rank)
    if (!roster.has_come(rank)) absent.push_back(options.name_of(rank));
  return fmt::format("{} did not come within {}: ", os::list_ranks(absent), clock.allowance()) +
         fmt::format(kWhere, options.size);
}

[[noreturn]] void throw_told(const Message& message) {
  switch (message.kind) {
    case Message::Kind::mismatch:
      throw MismatchError(message.text.data());
    case Message::Kind::timeout:
      throw TimeoutError(message.text.data());
    default:
      throw TransportError(message.text.data());
  }
}

void pause_until(Deadline deadline) {
  const auto time = std::min<std::chrono::nanoseconds>(kRetry, deadline.remaining());
  const timespec left{.tv_sec = 0, .tv_nsec = static_cast<long>(time.count())};
  nanosleep(&left, nullptr);
}

// ---- The side of rank 0.

class Host {
 public:
  Host(const ShmOptions& options, os::FileDescriptor listener, std::shared_ptr<const void> held)
      : options_(options), clock_(options.deadline), listener_(std::move(listener)), held_(std::move(held)) {
    roster_.kind = Message::Kind::roster;
    roster_.set_came(0);
  }

  Meeting gather() {
    while (came_ < options_.size) {
      if (clock_.deadline().expired()) {
        refuse(Message::Kind::timeout, absence(roster_, options_, clock_));
      }
      wait();
      while (Socket socket = accept_from(listener_)) {
        if (socket.peer().uid == geteuid()) {
          guests_.push_back({std::move(socket), -1});
        }
      }
      for (Guest& guest : guests_) {
        listen_to(guest);
      }
      std::erase_if(guests_, [](const Guest& guest) { return !guest.socket; });
    }
    return welcome();
  }

 private:
  struct Guest {
    Socket socket;
    int rank = -1;  // until it says
  };

  void wait() {
    std::vector<pollfd> entries{{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const Guest& guest : guests_) {
      entries.push_back({.fd = guest.socket.get(), .events = POLLIN, .revents = 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(clock_.deadline().remaining());
    poll(entries.data(), entries.size(), static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
  }

  void listen_to(Guest& guest) {
    Message message;
    std::vector<os::FileDescriptor> files;
    switch (guest.socket.receive(message, files)) {
      case Socket::Received::nothing_yet:
        return;
      case Socket::Received::closed:
        if (guest.rank >= 0) {
          refuse(Message::Kind::transport,
                 fmt::format("rank {} (pid {}) died while the ranks were meeting: its own output says why",
                             options_.name_of(guest.rank), guest.socket.peer().pid));
        }
        guest.socket = Socket();
        return;
      case Socket::Received::message:
        if (message.version == Message::kVersion && message.kind != Message::Kind::hello) {
          refuse(message.kind, message.text.data());  // the guest gave up
        }
        admit(guest, message);
    }
  }

  void admit(Guest& guest, const Message& hello) {
    if (hello.version != Message::kVersion) {
      refuse(Message::Kind::mismatch,
             fmt::format("a rank speaks version {} of the protocol and rank 0 version {}: "
                         "run the same build of DeAR on all ranks",
                         hello.version, Message::kVersion));
    }
    if (hello.size != options_.size) {
      refuse(
          Message::Kind::mismatch,
          fmt::format("rank {} (pid {}) believes in {} ranks, rank 0 in {}: start all with the same number",
                      hello.rank, guest.socket.peer().pid, hello.size, options_.size));
    }
    if (hello.rank < 0 || hello.rank >= options_.size || roster_.has_come(hello.rank)) {
      refuse(Message::Kind::mismatch,
             fmt::format(
                 "two processes claim rank {} (one is pid {}): give each a rank of its own, and each job a "
                 "rendezvous of its own",
                 hello.rank, guest.socket.peer().pid));
    }
    guest.rank = hello.rank;
    roster_.set_came(hello.rank);
    ++came_;
    for (const Guest& other : guests_) {
      if (other.rank >= 0) {
        other.socket.send(roster_);
      }
    }
  }

  // Tells all guests why the meeting fails, and throws the same here.
  [[noreturn]] void refuse(Message::Kind kind, const std::string& text) {
    Message message;
    message.kind = kind;
    message.set_text(text);
    for (const Guest& guest : guests_) {
      if (guest.socket) {
        guest.socket.send(message);
      }
    }
    throw_told(message);
  }

  Meeting welcome() {
    std::sort(guests_.begin(), guests_.end(), [](const Guest& a, const Guest& b) { return a.rank < b.rank; });
    std::vector<os::FileDescriptor> processes;
    std::shared_ptr<Segment> board;
    try {
      processes.push_back(os::watch_process(getpid()));
      for (const Guest& guest : guests_) {
        if (guest.rank >= 0) {
          processes.push_back(os::watch_process(guest.socket.peer().pid));
        }
      }
      board = Segment::create(Control::bytes_for(options_.size), "the ranks' meeting place");
    } catch (const Error& error) {
      refuse(Message::Kind::transport, error.what());
    }
    std::vector<int> files{board->file()};
    for (const os::FileDescriptor& process : processes) {
      files.push_back(process.get());
    }
    Message message;
    message.kind = Message::Kind::welcome;
    std::vector<Socket> sockets;
    for (Guest& guest : guests_) {
      if (guest.rank >= 0) {
        pass_to_current(guest.socket, message, files);
        sockets.push_back(std::move(guest.socket));
      }
    }
    board->close_file();
    return {std::move(board), Peers(std::move(processes)),
            std::make_unique<HostChannel>(std::move(sockets), held_)};
  }

  // The kernel limits the files that are under way between processes; a guest that is gone is found by the
  // barrier that follows.
  void pass_to_current(const Socket& guest, const Message& message, const std::vector<int>& files) const {
    for (;;) {
      const int error = guest.send(message, files);
      if ((error != EAGAIN && error != ETOOMANYREFS) || clock_.deadline().expired()) {
        return;
      }
      pause_until(clock_.deadline());
    }
  }

  const ShmOptions& options_;
  Clock clock_;
  os::FileDescriptor listener_;
  std::shared_ptr<const void> held_;
  Message roster_;
  int came_ = 1;
  std::vector<Guest> guests_;
};

// ---- The side of the others.

class Visitor {
 public:
  explicit Visitor(const ShmOptions& options) : options_(options), clock_(options.deadline) {}

  // Null when nobody listens, or when the listener went away before it heard this rank.
  std::unique_ptr<Meeting> visit() {
    Socket host = connect_to(options_.rendezvous);
    if (!host) return nullptr;
    if (const uid_t owner = host.peer().uid; owner != geteuid()) {
      throw TransportError(
          fmt::format("user {} holds the rendezvous of this job: choose another one", owner));
    }
    Message hello;
    hello.rank = options_.rank;
    hello.size = options_.size;
    host.send(hello);
    return listen_to(std::move(host));
  }

  [[nodiscard]] const Clock& clock() const { return clock_; }

 private:
  std::unique_ptr<Meeting> listen_to(Socket host) {
    Message roster;
    Message message;
    std::vector<os::FileDescriptor> files;
    for (;;) {
      switch (host.receive(message, files)) {
        case Socket::Received::closed:
          if (roster.kind == Message::Kind::roster) {
            throw TransportError(
                fmt::format("rank {} (pid {}) died while the ranks were meeting: its own output says why",
                            options_.name_of(0), host.peer().pid));
          }
          return nullptr;
        case Socket::Received::nothing_yet:
          if (clock_.deadline().expired()) {
            give_up_with(host, roster);
          }
          host.wait_readable(clock_.deadline());
          break;
        case Socket::Received::message:
          if (message.kind == Message::Kind::welcome) {
            return enter(std::move(host), std::move(files));
          }
          if (message.kind != Message::Kind::roster) {
            throw_told(message);
          }
          roster = message;
      }
    }
  }

  std::unique_ptr<Meeting> enter(Socket host, std::vector<os::FileDescriptor> files) {
    if (files.size() != static_cast<std::size_t>(options_.size) + 1) {
      throw TransportError("not all files of the meeting arrived from rank 0 (see ulimit -n)");
    }
    auto board = Segment::map(std::move(files.front()), Control::bytes_for(options_.size));
    files.erase(files.begin());
    return std::make_unique<Meeting>(
        Meeting{std::move(board), Peers(std::move(files)), std::make_unique<GuestChannel>(std::move(host))});
  }

  // Rank 0 and the others hear why, so that they do not take our going for a death.
  [[noreturn]] void give_up_with(const Socket& host, const Message& roster) {
    Message message;
    message.kind = Message::Kind::timeout;
    message.set_text(roster.kind == Message::Kind::roster
                         ? absence(roster, options_, clock_)
                         : fmt::format("rank {} (pid {}) did not answer within {}: is it stopped?",
                                       options_.name_of(0), host.peer().pid, clock_.allowance()));
    host.send(message);
    throw_told(message);
  }

  const ShmOptions& options_;
  Clock clock_;
};

}  // namespace

Meeting meet(const ShmOptions& options) {
  Visitor visitor(options);
  for (;;) {
    if (options.rank == 0) {
      if (os::FileDescriptor listener = listen_at(options.rendezvous); listener.is_open()) {
        return Host(options, std::move(listener), hold(options)).gather();
      }
      // Another process is rank 0 already: a visit makes that known to all.
    }
    if (std::unique_ptr<Meeting> meeting = visitor.visit()) return std::move(*meeting);
    if (options.deadline.expired()) {
      const std::string allowance = visitor.clock().allowance();
      if (options.rank != 0)
        throw TimeoutError(fmt::format("rank {} did not come within {}: ", options.name_of(0), allowance) +
                           fmt::format(kWhere, options.size));
      throw TimeoutError(fmt::format(
          "another process held the place of rank 0 for {}: give each job a rendezvous of its own",
          allowance));
    }
    pause_until(options.deadline);
  }
}

}  // namespace dear::backends
