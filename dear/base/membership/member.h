#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dear/base/membership/roster.h"
#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::membership {

// A process of a job whose launcher keeps a roster. From any thread.
class Member {
 public:
  // `place` as in DEAR_MEMBERSHIP, `number` as in DEAR_MEMBER. ConfigError where there is no such place.
  Member(const std::string& place, int number);

  [[nodiscard]] int number() const { return number_; }
  // The roster as it is now. TransportError where the launcher is gone.
  [[nodiscard]] Roster roster() const;
  // Tells the launcher that this process has left the groups of former epochs, or has none, and wants to take
  // part. Returns the first open epoch of which it is a member. TimeoutError naming those that were not
  // ready.
  [[nodiscard]] Roster join(Deadline deadline) const;
  // The members of this epoch could not meet: asks for another.
  void ask_again(const Roster& roster) const;

 private:
  void say(std::string_view what, std::int64_t epoch) const;
  int number_;
  os::FileDescriptor roster_, say_;
};

}  // namespace dear::membership
