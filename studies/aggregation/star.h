#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/reduction.h"
#include "dear/comm/group/group.h"

// Sums through an aggregator: a rank that only adds numbers and combines bits by or, as a programmable switch
// does (Lao et al. 2021, "ATP: In-network Aggregation for Multi-tenant Learning", NSDI '21). The last rank of
// a group is the aggregator, all others are workers. Each worker sends to the aggregator alone, and receives
// from it what all workers' messages add up to. What the numbers and bits mean the aggregator does not know.
//
// [Note: links of a star] Between the aggregator and each worker there are two groups of two ranks, one for
// each direction, so that both directions are in use at once; a message is a broadcast in one of them. It
// travels in pieces: while a piece is received, the one before is added up, and the one before that is sent.
// On a modelled network each direction of each worker has a link of its own, as at a switch.
namespace dear::studies::aggregation {

// A Message is everything that a worker sends at once: words of bits, and numbers. The same on every worker,
// else a MismatchError on the aggregator and a TransportError on workers, both of which name the first worker
// that differs.
struct Message {
  std::int64_t words = 0;    // of 64 bits, combined by or
  std::int64_t values = 0;   // added up, worker 0's first, then worker 1's, ...
  DType dtype = DType::f32;  // of the values
  std::uint64_t label = 0;   // the workers' own; the aggregator compares it between workers
  friend bool operator==(const Message&, const Message&) = default;
};

// Memory of a message. Values begin at a multiple of 64 bytes.
struct Payload {
  std::span<std::uint64_t> words;
  std::span<std::byte> values;
  template <typename T>
  [[nodiscard]] std::span<T> values_as() const {
    return {reinterpret_cast<T*>(values.data()), values.size() / sizeof(T)};
  }
};

// Bytes of messages, without what a backend adds to them.
struct Traffic {
  std::int64_t sent = 0;
  std::int64_t received = 0;
};

// One worker's connection with the aggregator, of which it holds one end, and the aggregator the other.
struct Link {
  Group up, down;       // in each the aggregator is rank 0, the worker rank 1
  Buffer head;          // of `up`: what the worker is about to send
  Buffer sent, summed;  // of `up` and of `down`
  void make_room(std::int64_t bytes);
};

// Making one is a collective: every rank of the group makes a Worker or, on the last rank, an Aggregator.
// ConfigError, on every rank, for a group of one. One thread at a time. Each wait is bounded by the timeout
// of the group for each piece. A failure ends the group on all ranks.
class Worker {
 public:
  explicit Worker(const Group& group);
  [[nodiscard]] int rank() const { return group_.rank(); }
  [[nodiscard]] int workers() const { return group_.size() - 1; }

  // Tells the aggregator what comes next, and returns the memory to write it into, which holds anything.
  Payload prepare(const Message& message);
  // Sends what was written; returns what all workers' messages add up to, the same bits on each of them. The
  // memory is the caller's until the next prepare(). `came`, where there is one, is called while the rest is
  // under way: when all words are there, with no value, and then with how many of the first values are.
  using Came = std::function<void(const Payload& sums, std::int64_t values)>;
  Payload exchange(const Came& came = {});
  // Ends the aggregator's work, once all workers have called it. Nothing may follow.
  void finish();

  [[nodiscard]] Traffic traffic() const { return traffic_; }  // of all messages so far
  // Ends the group on all ranks, for this reason.
  void abort(const std::string& reason) const noexcept { group_.abort(reason); }

 private:
  void announce(const Message& message, bool last);
  Group group_;
  Link link_;
  Message message_;
  Pending announced_;
  Traffic traffic_;
};

class Aggregator {
 public:
  explicit Aggregator(const Group& group);
  // Combines one message of all workers; false when they have finished.
  bool serve();

 private:
  void add(const Message& message);
  Group group_;
  std::vector<Link> links_;  // by worker
};

}  // namespace dear::studies::aggregation
