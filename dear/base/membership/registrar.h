#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "dear/base/membership/board.h"
#include "dear/base/membership/roster.h"

namespace dear::membership {

// The launcher's side of [Note: membership]. One thread.
class Registrar {
 public:
  // A job on several hosts says where a member is, and gives the roster to the other hosts.
  struct Host {
    int number = 0;
    std::string address{};
    int port = 0;
  };
  struct Hosts {
    std::function<Host(int member)> of;
    std::function<void(const std::string& roster)> publish;
  };
  // Begins with epoch 0 of members 0 to `members` - 1. TransportError where the system has no memory or pipe.
  explicit Registrar(int members, Hosts hosts = {});

  // The members on this host.
  [[nodiscard]] const Board& board() const { return board_; }
  void read();  // what they said
  // A line that a member on another host said.
  void hear(std::string_view line);

  [[nodiscard]] const Roster& roster() const { return roster_; }
  // Whether this process has said that it follows the roster, since enters() or the beginning.
  [[nodiscard]] bool follows(int member) const { return following_.contains(member); }
  // A process with this number was started anew; it is no member until it says that it comes.
  void enters(int member);
  // Whether this process has taken part in the work, so that it has the state of it. An epoch of others alone
  // is not opened.
  [[nodiscard]] bool works(int member) const { return working_.contains(member); }
  // Whether this process, which fails, has not been in an open epoch since one failed before it.
  [[nodiscard]] bool fails_with_another(int member) const;
  // The process has ended. `well`: with what it had to do; the others may be about to end, too, and need no
  // other epoch unless they wait for it.
  void leaves(int member, bool well);

 private:
  void begin_epoch();  // of those that have not ended, closed until they are ready
  void publish();

  Board board_;
  Hosts hosts_;
  Roster roster_;
  std::set<int> following_, ready_, working_, ended_;
  std::map<int, std::int64_t> last_open_;  // epoch of each member
  std::int64_t failed_at_ = -1;            // the epoch of the last member that failed
};

}  // namespace dear::membership
