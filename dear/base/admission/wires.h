#pragma once

#include <poll.h>
#include <string>
#include <utility>
#include <vector>

#include "dear/base/os/at_fork.h"
#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::admission {

// The first address of a network interface of this host. ConfigError where it has none.
std::string address_of_interface(const std::string& name, int rank);

// A Monitor knows, while ranks connect, whether all of them still live.
class Monitor {
 public:
  virtual ~Monitor() = default;
  // Adds the descriptors that wake it.
  virtual void add_to(std::vector<pollfd>& entries) const = 0;
  // Throws where a rank ended or failed. Never waits.
  virtual void check() = 0;
};

// The connections of one rank to others, each of which has proved who is at its ends (handshake.h). Every
// rank makes one, tells the others its place, and connects; afterwards nothing listens.
class Wires {
 public:
  struct Options {
    std::string key;  // of the job, alike on all ranks
    int rank = 0;
    int size = 1;
    Deadline deadline;         // for all connections together
    std::vector<int> peers{};  // those to connect with; none: all others
    // Null: a rank that is waited for is asked, time and again, whether it still listens.
    Monitor* monitor = nullptr;
  };
  struct Wire {
    os::FileDescriptor socket;  // none to the rank itself
    os::NotInChildren kept_out;
  };

  // The address of a local socket begins with kLocal; the kernel chooses the rest.
  static constexpr char kLocal = '@';
  struct Place {
    std::string address;
    int port = 0;
  };

  // Listens at this address of this host, or at a local socket for kLocal alone. TransportError where it
  // cannot.
  Wires(const std::string& address, int rank);
  // Listens nowhere: for a rank whose peers are all below it.
  Wires() = default;

  [[nodiscard]] const Place& place() const { return place_; }

  // By rank, as `places` is. A rank connects to those below it, all at once, and hears those above.
  // TimeoutError naming the ranks without a connection at the deadline; TransportError naming one that ended;
  // what the monitor throws.
  std::vector<Wire> connect(const Options& options, const std::vector<Place>& places);

 private:
  os::FileDescriptor listener_;
  os::NotInChildren kept_out_;
  Place place_;
};

}  // namespace dear::admission
