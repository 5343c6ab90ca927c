#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <vector>

#include "dear/base/admission/door.h"
#include "dear/base/launch/held_port.h"
#include "dear/base/launch/host_wire.h"

namespace dear::launch {

// [Note: hosts] A job on several hosts has a launcher on each. They meet at one address. The launcher on the
// host that has this address leads: it decides which ranks there are and when the job ends or goes on, as
// of a job on one host. The others start ranks as it says, pass on their output, and tell it how they end.
// Where the leader ends, the others end their ranks. A host is lost when its launcher ends, or when its
// kernel acknowledges nothing for 30 s.
struct HostsOptions {
  int hosts = 1;                                                  // with a launcher each
  std::string address;                                            // of the leader, a name or a number
  int port = 0;                                                   // there
  int ranks = 1;                                                  // that this host starts
  std::string secret{};                                           // "" for none
  std::chrono::duration<double> wait = std::chrono::minutes(10);  // for all hosts to come
  std::function<void(const std::string&)> say{};  // told once what is waited for, if it takes its time
};

// A secret for the ranks of one start of the job, made of that of the launchers; "" without one.
std::string secret_of_ranks(const HostsOptions& options, const std::string& run_id);

// The side of the leader: host 0 is its own.
class Hosts {
 public:
  struct Host {
    std::string name;                  // as it calls itself
    std::string address;               // for ranks of other hosts
    int port = 0;                      // held there, where ranks can meet
    int ranks = 0;                     // that it starts
    std::unique_ptr<HostWire> wire{};  // none of host 0, and of one that is lost
    bool leaves = false;               // it was told to end
  };
  struct Event {
    int host = 0;
    Words words;  // "lost" alone where it is, "came" where it takes the place of a lost one
  };

  // Waits for all hosts to come, and refuses those that say another number of hosts. TimeoutError naming
  // those that did.
  Hosts(os::FileDescriptor listener, const HostsOptions& options, const std::string& address);

  [[nodiscard]] int count() const { return static_cast<int>(hosts_.size()); }
  [[nodiscard]] const Host& at(int host) const { return hosts_[static_cast<std::size_t>(host)]; }
  // Counts the ranks that all hosts start together, at most.
  [[nodiscard]] int all_ranks() const;
  // Whether ranks can be started there.
  [[nodiscard]] bool takes_ranks(int host) const;
  // Where these ranks are: host by host, as many as each starts; none where there is no room for all.
  [[nodiscard]] std::vector<int> hosts_of(int ranks) const;

  void tell(int host, const Words& words) const;  // nothing where it is lost
  void tell_all(const Words& words) const;
  void leaves(int host) { hosts_[static_cast<std::size_t>(host)].leaves = true; }
  void add_to(std::vector<pollfd>& entries) const;
  // Never waits.
  std::vector<Event> hear();
  // Waits until this many ranks can be started. False at the deadline.
  bool wait_for_room(int ranks, Deadline deadline);
  // Tells all that the job is over, and waits until they have heard it, a while.
  void end(int code);

 private:
  // Takes in who has proved itself and says what it is. Its number, where it has one.
  std::optional<int> take_in(std::unique_ptr<HostWire>& wire, const Words& words);

  HostsOptions options_;
  HeldPort held_;
  admission::Door door_;
  std::vector<Host> hosts_;
  std::vector<std::unique_ptr<HostWire>> unknown_;  // who has not said yet what it is
};

// The side of another host.
class LeaderWire {
 public:
  // Waits until the leader is there, and introduces this host. TimeoutError.
  LeaderWire(const HostsOptions& options, const std::string& address);

  [[nodiscard]] HostWire& wire() { return *wire_; }
  [[nodiscard]] const std::string& address() const { return address_; }  // of the leader, a number

 private:
  // Whether the other end has proved that it leads the job; after a while it is given up.
  bool visit(const sockaddr* address, unsigned length, const HostsOptions& options, Deadline deadline);

  std::string address_;
  HeldPort held_;
  std::unique_ptr<HostWire> wire_;
};

// Meets the launchers of the other hosts: the leader's side where this host has the address and nobody
// listens there yet. ConfigError for an address that has no meaning here.
struct MetHosts {
  std::unique_ptr<Hosts> hosts{};
  std::unique_ptr<LeaderWire> leader{};
};
MetHosts meet_hosts(const HostsOptions& options);

}  // namespace dear::launch
