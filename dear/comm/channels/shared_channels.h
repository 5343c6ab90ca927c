#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "dear/comm/channels/channels.h"

namespace dear::channels {

// Channels that several groups of ranks use at once, each on a thread of its own: open() gives each group
// channels between its ranks.
//
// One thread at a time uses the whole. Threads take turns in the order in which they come, and a thread that
// waits for messages while there are other groups keeps its turn for a moment only. So no group waits for
// another, in whatever order they communicate.
class SharedChannels : public std::enable_shared_from_this<SharedChannels> {
 public:
  explicit SharedChannels(std::unique_ptr<Channels> whole) : whole_(std::move(whole)) {}

  [[nodiscard]] const Channels& whole() const { return *whole_; }

  // The channels between some ranks of the whole: member i is rank members[i] there, and the rank that calls
  // is one of them. `first_tag` is added to all tags, and tells the messages of a group from those of others
  // that have two of its ranks. Failures are those of the whole, and their messages name ranks of the whole.
  std::unique_ptr<Channels> open(std::vector<int> members, Tag first_tag);

  // Keeps what messages may still be read from or written to until the channels are gone.
  void keep(std::shared_ptr<void> memory);

 private:
  class Member;
  class Turn;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t tickets_ = 0, served_ = 0;  // the next one to take, and the one whose turn it is
  int members_ = 0;
  std::vector<std::shared_ptr<void>> kept_;  // outlives the channels
  std::unique_ptr<Channels> whole_;
};

}  // namespace dear::channels
