#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "dear/base/deadline.h"
#include "dear/programs/plan.h"
#include "dear/transport/channels.h"

namespace dear::programs {

// What a plan needs to become a collective on memory.
struct Performance {
  std::byte* data = nullptr;
  std::byte* output = nullptr;  // of an all-to-all
  // out = sources[0] (op) sources[1] (op) ... for whole elements; `out` is one of the sources. Unused where
  // nothing is reduced.
  using Combine =
      std::function<void(std::span<const std::byte* const> sources, std::byte* out, std::int64_t bytes)>;
  Combine combine;
  // For plans with heads: what every peer that is sent to is told, and what is done with what one told.
  const std::byte* head = nullptr;
  std::function<void(int rank, const std::byte* head)> compare;
  transport::Tag tag = 0;  // of all messages; the same on all ranks
};

// Staging memory, for one play at a time; grows to the largest. It and the players that used it live longer
// than the channels: after a failure messages may be on their way still.
class Stage {
 public:
  // `bytes` of memory, aligned to a cache line; what was there before is lost.
  std::byte* take(std::int64_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::int64_t bytes_ = 0;
};

// Plays one plan, any number of times.
class Player {
 public:
  explicit Player(Plan plan);
  Player(Player&&) noexcept;
  Player& operator=(Player&&) noexcept;
  ~Player();

  // Returns when this rank's part is done and its memory may be written again; all errors of Channels, and
  // what `combine` and `compare` throw. After an error the channels are of no further use.
  void play(const Performance& performance, transport::Channels& channels, Stage& stage,
            const transport::Channels::Describe& what, Deadline deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dear::programs
