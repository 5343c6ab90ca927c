#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/channels/channels.h"
#include "dear/comm/message_programs/message_graph.h"

namespace dear::message_programs {

// What a graph needs to become a collective on memory.
struct ExecutionArguments {
  std::byte* data = nullptr;
  std::byte* output = nullptr;  // of an all-to-all
  // out = sources[0] (op) sources[1] (op) ... for whole elements; `out` is one of the sources. Unused where
  // nothing is reduced.
  using Combine =
      std::function<void(std::span<const std::byte* const> sources, std::byte* out, std::int64_t bytes)>;
  Combine combine;
  // For graphs with heads: what every peer that is sent to is told, and what is done with what one told.
  const std::byte* head = nullptr;
  std::function<void(int rank, const std::byte* head)> compare;
  channels::Tag tag = 0;  // of all messages; the same on all ranks
};

// Staging memory, for one execution at a time; grows to the largest. It and the executors that used it live
// longer than the channels: after a failure messages may be on their way still.
class StagingMemory {
 public:
  // Returns `bytes` of memory, aligned to a cache line; its former content is lost.
  std::byte* take(std::int64_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::int64_t bytes_ = 0;
};

// Executes one graph, any number of times.
class Executor {
 public:
  explicit Executor(MessageGraph graph);
  Executor(Executor&&) noexcept;
  Executor& operator=(Executor&&) noexcept;
  ~Executor();

  // Returns when this rank's part is done and its memory may be written again; all errors of Channels, and
  // what `combine` and `compare` throw. After an error the channels are of no further use.
  void execute(const ExecutionArguments& arguments, channels::Channels& channels, StagingMemory& stage,
               const channels::Channels::Describe& what, Deadline deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dear::message_programs
