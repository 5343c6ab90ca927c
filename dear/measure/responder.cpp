#include "dear/measure/responder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "dear/base/deadline.h"
#include "dear/base/processor_time.h"
#include "dear/measure/computation.h"

namespace dear::measure {
namespace {

// Of computation alone, which the rest is compared with: many times as long as the system lets a thread run
// before it looks at others.
constexpr std::chrono::milliseconds kAlone{100};

const std::byte* at(const std::byte* vector, const Work& work, std::int64_t element) {
  return vector + element * size_of(work.dtype);
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

Responder::Responder(Engine& engine, Place place) : engine_(engine), place_(std::move(place)) {}

void Responder::prepare(std::int64_t bytes, std::int64_t output_bytes) {
  const std::int64_t rounding =
      std::int64_t{8} * place_.size;  // counts are rounded up to a multiple of the ranks
  engine_.prepare(bytes + rounding, output_bytes > 0 ? output_bytes + rounding : 0);
}

Reply Responder::answer(const Command& command) {
  if (const std::string why = engine_.refusal(command.operation, command.dtype); !why.empty()) {
    return {.kind = Reply::Kind::refused, .text = why};
  }
  const Work work{.operation = command.operation, .dtype = command.dtype, .count = count_of(command)};
  return command.kind == Command::Kind::verify ? verify(work)
         : command.computing                   ? measure_while_computing(command, work)
         : command.late_seconds > 0            ? measure_waiting(command, work)
                                               : measure(command, work);
}

std::int64_t Responder::count_of(const Command& command) const {
  if (command.operation == MeasuredOperation::barrier) {
    return 0;
  }
  const std::int64_t unit = size_of(command.dtype) * engine_.granularity(command.operation);
  return (command.bytes + unit - 1) / unit * engine_.granularity(command.operation);
}

// Zeros stay zeros however often they are added.
Reply Responder::measure(const Command& command, const Work& work) {
  std::memset(engine_.data(), 0, static_cast<std::size_t>(work.count * size_of(work.dtype)));
  Reply reply{.kind = Reply::Kind::spans};
  for (int i = -command.unmeasured; i < command.repetitions; ++i) {
    place_.meet();
    const double begin = now_seconds();
    command.touching ? run_touching(work, command.batch) : engine_.run_batch(work, command.batch);
    const double end = now_seconds();
    if (i >= 0) {
      reply.spans.push_back({.begin_seconds = begin, .end_seconds = end});
    }
  }
  // Whoever answers first wakes the coordinator, which may take the core of one that is not done.
  place_.meet();
  return reply;
}

void Responder::run_touching(const Work& work, int batch) {
  const std::int64_t bytes = work.count * size_of(work.dtype);
  const std::byte* const result = engine_.output() != nullptr ? engine_.output() : engine_.gathered();
  for (int i = 0; i < batch; ++i) {
    std::memset(engine_.data(), 0, static_cast<std::size_t>(bytes));
    engine_.run(work);
    read(result, bytes);
  }
}

// All ranks compute for a while, and go on with it while the collectives run.
Reply Responder::measure_while_computing(const Command& command, const Work& work) {
  std::memset(engine_.data(), 0, static_cast<std::size_t>(work.count * size_of(work.dtype)));
  Reply reply{.kind = Reply::Kind::spans};
  for (int i = -command.unmeasured; i < command.repetitions; ++i) {
    const Computation computation;
    struct Instant {
      double seconds;
      double products;
    };
    const auto now = [&] {
      return Instant{.seconds = now_seconds(), .products = static_cast<double>(computation.products())};
    };
    place_.meet();
    const Instant start = now();
    std::this_thread::sleep_for(kAlone);
    const Instant alone = now();
    place_.meet();
    const Instant begin = now();
    engine_.run_batch(work, command.batch);
    const Instant end = now();
    if (i >= 0) {
      const double rate_alone = (alone.products - start.products) / (alone.seconds - start.seconds);
      // Where none was finished, one nearly was.
      const double rate_beside = std::max(1.0, end.products - begin.products) / (end.seconds - begin.seconds);
      reply.spans.push_back({.begin_seconds = begin.seconds, .end_seconds = end.seconds});
      reply.slowdowns.push_back(rate_alone / rate_beside);
    }
    place_.meet();  // none stops computing before the last has communicated
  }
  return reply;
}

// Rank 0 is late, and all others wait for it inside the operation.
Reply Responder::measure_waiting(const Command& command, const Work& work) {
  std::memset(engine_.data(), 0, static_cast<std::size_t>(work.count * size_of(work.dtype)));
  Reply reply{.kind = Reply::Kind::spans};
  for (int i = -command.unmeasured; i < command.repetitions; ++i) {
    place_.meet();
    if (place_.rank == 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(command.late_seconds));
    }
    const double used_before = processor_seconds();
    const double begin = now_seconds();
    engine_.run_batch(work, command.batch);
    const double end = now_seconds();
    const double used = processor_seconds() - used_before;
    if (i >= 0) {
      reply.spans.push_back({.begin_seconds = begin, .end_seconds = end});
      reply.processor_shares.push_back(used / (end - begin));
    }
  }
  place_.meet();
  return reply;
}

Reply Responder::verify(const Work& work) {
  const Contents contents(work.dtype, place_.size);
  contents.fill(engine_.data(), {0, work.count}, place_.rank);
  if (engine_.output() != nullptr) {
    std::memset(engine_.output(), 0xff, static_cast<std::size_t>(work.count * size_of(work.dtype)));
  }
  place_.meet();
  engine_.run_to_verify(work);
  const std::optional<std::string> difference = first_difference(contents, work);
  // A rank that goes on must not write into what another still reads.
  place_.meet();
  return difference ? Reply{.kind = Reply::Kind::wrong, .text = *difference}
                    : Reply{.kind = Reply::Kind::right};
}

std::optional<std::string> Responder::first_difference(const Contents& contents, const Work& work) const {
  const Range all{0, work.count};
  if (place_.only_copies) {
    return contents.differs_from_rank(engine_.output(), all, place_.rank);
  }
  switch (work.operation) {
    case MeasuredOperation::pair:
    case MeasuredOperation::all_reduce:
      return contents.differs_from_sum(engine_.gathered(), all);
    case MeasuredOperation::reduce_scatter:
      return contents.differs_from_sum(engine_.reduced_shard(work), engine_.shard(work, place_.rank));
    case MeasuredOperation::broadcast:
      return contents.differs_from_rank(engine_.data(), all, 0);
    case MeasuredOperation::all_gather:
      return of_each_peer(place_.size, [&](int peer) {
        const Range theirs = engine_.shard(work, peer);
        return contents.differs_from_rank(at(engine_.gathered(), work, theirs.begin), theirs, peer);
      });
    case MeasuredOperation::all_to_all:
      // Block q of the output is what rank q had in its block of this rank's number.
      return of_each_peer(place_.size, [&](int peer) {
        const std::int64_t block = work.count / place_.size;
        return contents.differs_from_rank(at(engine_.output(), work, peer * block),
                                          {place_.rank * block, (place_.rank + 1) * block}, peer);
      });
    case MeasuredOperation::barrier:
      break;
  }
  return std::nullopt;
}

}  // namespace dear::measure
