#include "dear/tools/bench_collectives/rank_runner.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/processor_time.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/tools/bench_collectives/computation.h"
#include "dear/tools/bench_collectives/uneven_rows.h"

namespace dear::bench_collectives {
namespace {

// How long computation alone is measured, which the rest is compared with: many times as long as the system
// lets a thread run before it looks at others.
constexpr std::chrono::milliseconds kAlone{100};

constexpr std::byte kBefore{0xff};  // what an output has before an operation that is verified

const std::byte* at(const std::byte* vector, const Call& call, std::int64_t element) {
  return vector + element * size_of(call.dtype);
}

// All of it, as fast as it comes.
void read(const std::byte* data, std::int64_t bytes) {
  constexpr std::int64_t kAtOnce = 8;
  constexpr std::int64_t kWord = sizeof(std::uint64_t);
  std::array<std::uint64_t, kAtOnce> sums{};
  for (std::int64_t at = 0; at + kAtOnce * kWord <= bytes; at += kAtOnce * kWord) {
    std::array<std::uint64_t, kAtOnce> words;
    std::memcpy(words.data(), data + at, sizeof words);
    for (std::size_t i = 0; i < words.size(); ++i) sums[i] += words[i];
  }
  volatile const std::uint64_t kept = std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
  static_cast<void>(kept);
}

template <typename Difference>
std::optional<std::string> of_each_peer(int size, Difference difference) {
  for (int peer = 0; peer < size; ++peer) {
    if (auto found = difference(peer)) {
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace

RankRunner::RankRunner(Collectives& collectives, Rank rank)
    : collectives_(collectives), rank_(std::move(rank)) {}

void RankRunner::prepare(std::int64_t bytes, std::int64_t output_bytes) {
  const std::int64_t rounding =
      std::int64_t{8} * rank_.size;  // counts are rounded up to a multiple of the ranks
  collectives_.prepare(bytes + rounding, output_bytes > 0 ? output_bytes + rounding : 0);
}

Reply RankRunner::answer(const Command& command) {
  if (const std::string why = collectives_.refusal(command.operation, command.dtype); !why.empty()) {
    return {.kind = Reply::Kind::refused, .text = why};
  }
  const Call call{.operation = command.operation,
                  .dtype = command.dtype,
                  .count = count_of(command),
                  .seed = command.seed};
  return command.kind == Command::Kind::verify ? verify(call)
         : command.computing                   ? measure_while_computing(command, call)
         : command.late_seconds > 0            ? measure_waiting(command, call)
                                               : measure(command, call);
}

std::int64_t RankRunner::count_of(const Command& command) const {
  if (command.operation == MeasuredOperation::barrier) {
    return 0;
  }
  const std::int64_t unit = size_of(command.dtype) * collectives_.granularity(command.operation);
  return (command.bytes + unit - 1) / unit * collectives_.granularity(command.operation);
}

// Zeros stay zeros however often they are added.
Reply RankRunner::measure(const Command& command, const Call& call) {
  std::memset(collectives_.data(), 0, static_cast<std::size_t>(call.count * size_of(call.dtype)));
  Reply reply{.kind = Reply::Kind::measured};
  for (int i = -command.unmeasured; i < command.repetitions; ++i) {
    rank_.barrier();
    const double begin = now_seconds();
    command.touching ? run_touching(call, command.batch) : collectives_.run_batch(call, command.batch);
    const double end = now_seconds();
    if (i >= 0) {
      reply.intervals.push_back({.begin_seconds = begin, .end_seconds = end});
    }
  }
  // Whoever answers first wakes the coordinator, which may take the core of one that is not done.
  rank_.barrier();
  return reply;
}

void RankRunner::run_touching(const Call& call, int batch) {
  const std::int64_t bytes = call.count * size_of(call.dtype);
  const std::byte* const result =
      collectives_.output() != nullptr ? collectives_.output() : collectives_.gathered();
  for (int i = 0; i < batch; ++i) {
    std::memset(collectives_.data(), 0, static_cast<std::size_t>(bytes));
    collectives_.run(call);
    read(result, bytes);
  }
}

// All ranks compute for a while, and go on with it while the collectives run.
Reply RankRunner::measure_while_computing(const Command& command, const Call& call) {
  std::memset(collectives_.data(), 0, static_cast<std::size_t>(call.count * size_of(call.dtype)));
  Reply reply{.kind = Reply::Kind::measured};
  for (int i = -command.unmeasured; i < command.repetitions; ++i) {
    const Computation computation;
    struct Instant {
      double seconds;
      double products;
    };
    const auto now = [&] {
      return Instant{.seconds = now_seconds(), .products = static_cast<double>(computation.products())};
    };
    rank_.barrier();
    const Instant start = now();
    std::this_thread::sleep_for(kAlone);
    const Instant alone = now();
    rank_.barrier();
    const Instant begin = now();
    collectives_.run_batch(call, command.batch);
    const Instant end = now();
    if (i >= 0) {
      const double rate_alone = (alone.products - start.products) / (alone.seconds - start.seconds);
      // Where none was finished, one nearly was.
      const double rate_beside = std::max(1.0, end.products - begin.products) / (end.seconds - begin.seconds);
      reply.intervals.push_back({.begin_seconds = begin.seconds, .end_seconds = end.seconds});
      reply.slowdowns.push_back(rate_alone / rate_beside);
    }
    rank_.barrier();  // none stops computing before the last has communicated
  }
  return reply;
}

// Rank 0 is late, and all others wait for it inside the operation.
Reply RankRunner::measure_waiting(const Command& command, const Call& call) {
  std::memset(collectives_.data(), 0, static_cast<std::size_t>(call.count * size_of(call.dtype)));
  Reply reply{.kind = Reply::Kind::measured};
  for (int i = -command.unmeasured; i < command.repetitions; ++i) {
    rank_.barrier();
    if (rank_.rank == 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(command.late_seconds));
    }
    const double used_before = os::processor_seconds();
    const double begin = now_seconds();
    collectives_.run_batch(call, command.batch);
    const double end = now_seconds();
    const double used = os::processor_seconds() - used_before;
    if (i >= 0) {
      reply.intervals.push_back({.begin_seconds = begin, .end_seconds = end});
      reply.processor_shares.push_back(used / (end - begin));
    }
  }
  rank_.barrier();
  return reply;
}

Reply RankRunner::verify(const Call& call) {
  const TestPattern pattern(call.dtype, rank_.size);
  pattern.fill(collectives_.data(), {0, call.count}, rank_.rank);
  if (collectives_.output() != nullptr) {
    std::memset(collectives_.output(), static_cast<int>(kBefore),
                static_cast<std::size_t>(call.count * size_of(call.dtype)));
  }
  rank_.barrier();
  collectives_.run_to_verify(call);
  const std::optional<std::string> difference = first_difference(pattern, call);
  // A rank that goes on must not write into what another still reads.
  rank_.barrier();
  return difference ? Reply{.kind = Reply::Kind::wrong, .text = *difference}
                    : Reply{.kind = Reply::Kind::right, .sent_bytes = collectives_.sent_bytes()};
}

std::optional<std::string> RankRunner::first_difference(const TestPattern& pattern, const Call& call) const {
  const Range all{0, call.count};
  if (rank_.only_copies) {
    return pattern.differs_from_rank(collectives_.output(), all, rank_.rank);
  }
  switch (call.operation) {
    case MeasuredOperation::pair:
    case MeasuredOperation::all_reduce:
      return pattern.differs_from_sum(collectives_.gathered(), all);
    case MeasuredOperation::reduce_scatter:
      return pattern.differs_from_sum(collectives_.reduced_shard(call), collectives_.shard(call, rank_.rank));
    case MeasuredOperation::broadcast:
      return pattern.differs_from_rank(collectives_.data(), all, 0);
    case MeasuredOperation::all_gather:
      return of_each_peer(rank_.size, [&](int peer) {
        const Range theirs = collectives_.shard(call, peer);
        return pattern.differs_from_rank(at(collectives_.gathered(), call, theirs.begin), theirs, peer);
      });
    case MeasuredOperation::all_to_all:
      // Block q of the output is what rank q had in its block of this rank's number.
      return of_each_peer(rank_.size, [&](int peer) {
        const std::int64_t block = call.count / rank_.size;
        return pattern.differs_from_rank(at(collectives_.output(), call, peer * block),
                                         {rank_.rank * block, (rank_.rank + 1) * block}, peer);
      });
    case MeasuredOperation::all_to_all_v: {
      const std::int64_t block = call.count / rank_.size;
      const auto rows = uneven_rows(call.seed, rank_.size, block);
      return of_each_peer(rank_.size, [&](int peer) {
        const std::int64_t came = rows[static_cast<std::size_t>(peer)][static_cast<std::size_t>(rank_.rank)];
        const std::int64_t begin = rank_.rank * block;
        auto wrong = pattern.differs_from_rank(at(collectives_.output(), call, peer * block),
                                               {begin, begin + came}, peer);
        const std::byte* const rest = at(collectives_.output(), call, peer * block + came);
        const std::byte* const end = at(collectives_.output(), call, (peer + 1) * block);
        if (!wrong && std::any_of(rest, end, [](std::byte one) { return one != kBefore; }))
          wrong = fmt::format("more than {} elements came from rank {}", came, peer);
        return wrong;
      });
    }
    case MeasuredOperation::barrier:
      break;
  }
  return std::nullopt;
}

}  // namespace dear::bench_collectives
