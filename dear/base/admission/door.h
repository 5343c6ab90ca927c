#pragma once

#include <list>
#include <memory>
#include <netdb.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "dear/base/admission/handshake.h"
#include "dear/base/admission/message.h"
#include "dear/base/os/at_fork.h"
#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::admission {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// A socket that listens at one address of this host, so that only networks of that address reach it. Port 0:
// any. Empty, with errno, where it cannot.
os::FileDescriptor listen_on(const sockaddr* address, unsigned length);
// Whether the process at the other end may be here: that of a local socket has to be of this user.
bool is_of_this_user(int socket);
// Sleeps until one is ready, at most a second.
void poll_until(std::vector<pollfd>& entries, Deadline deadline);

// A listener that lets in who has the key. Strangers cost little: so many at a time, each a short text and a
// short time; the oldest goes when there are more.
class Door {
 public:
  // `rank` of `size` has the listener. `longest`: of a text that may come from who has been let in.
  Door(os::FileDescriptor listener, std::string key, int rank, int size, std::size_t longest);

  struct Entered {
    MeetingConnection connection;
    int rank;             // as it says, and has signed
    int size;             // of its world, likewise
    std::string welcome;  // to say, to prove that this side has the key too
  };
  // Those who have proved since the last call. Never waits.
  std::vector<Entered> admit();

  void add_to(std::vector<pollfd>& entries) const;
  // How many of those who proved nothing were turned away.
  [[nodiscard]] int turned_away() const { return turned_away_; }

 private:
  struct Stranger {
    MeetingConnection connection;
    Handshake handshake;
    Deadline deadline;
  };
  void accept_strangers();
  // Whether it is settled. Who proves is added to `entered`.
  bool hear(Stranger& stranger, std::vector<Entered>& entered);

  os::FileDescriptor listener_;
  os::NotInChildren kept_out_;
  std::string key_;
  int rank_;
  std::size_t longest_;
  std::size_t most_;
  int turned_away_ = 0;
  std::list<Stranger> strangers_;
};

// The other side of a door: `rank` of `size` asks rank `host` to be let in.
class Visit {
 public:
  Visit(std::string key, int host, int rank, int size);

  enum class State : std::uint8_t { waiting, welcome, refused, foreign };
  // Answers a message of the host. Foreign: it does not have the key, or speaks otherwise.
  State hear(const MeetingMessage& message, MeetingConnection& connection);

 private:
  std::string key_;
  Handshake handshake_;
};

}  // namespace dear::admission
