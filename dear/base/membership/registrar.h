#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "dear/base/membership/roster.h"
#include "dear/base/os/file_descriptor.h"

namespace dear::membership {

// The launcher's side of [Note: membership]. One thread.
class Registrar {
 public:
  // Begins with epoch 0 of members 0 to `members` - 1. TransportError where the system has no memory or pipe.
  explicit Registrar(int members);

  // For the environment of each member, as DEAR_MEMBERSHIP.
  [[nodiscard]] std::string place() const;
  // Readable when a member has said something, which read() takes.
  [[nodiscard]] int fd() const { return said_.get(); }
  void read();

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
  void hear(std::string_view line);
  void begin_epoch();  // of those that have not ended, closed until they are ready
  void publish() const;

  os::FileDescriptor memory_, said_, say_;
  Roster roster_;
  std::set<int> following_, ready_, working_, ended_;
  std::map<int, std::int64_t> last_open_;  // epoch of each member
  std::int64_t failed_at_ = -1;            // the epoch of the last member that failed
  std::string unread_;
};

}  // namespace dear::membership
