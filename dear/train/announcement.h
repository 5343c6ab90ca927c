#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "dear/collective/group.h"

namespace dear::train {

// [Note: the word on the wire] What rank 0 decides between two steps has to reach the others, which wait for
// nothing then: with a collective of its own they would wait for all that is on the wire before it. So it
// travels along: before the first reduction of an iteration, which has the same place among the collectives
// of every rank, a few bytes are broadcast. At the end of that iteration they have long arrived.
class Announcement {
 public:
  using Words = std::array<double, 3>;

  explicit Announcement(Group group);

  // [program] On every rank, between two steps: the next iteration carries words, rank 0's `words`.
  void promise(const Words& words);
  // Before the first reduction of every iteration, on the thread that issues it: sends what was promised.
  void send();
  // [program] After the iteration for which they were promised: rank 0's words. `throw_if_failed` is asked
  // now and then, in case that they never come; TimeoutError when it says nothing.
  Words receive(const std::function<void()>& throw_if_failed);

 private:
  Group group_;
  Buffer buffer_;
  std::mutex mutex_;
  std::condition_variable sent_;
  bool promised_ = false;
  std::optional<Pending> pending_;
};

}  // namespace dear::train
