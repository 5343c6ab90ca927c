#include "dear/comm/group/testing/conformance.h"

// size: one suite, whose checks share what goes through views

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dear/base/os/testing/sleeping_threads.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"
#include "dear/comm/group/shard.h"
#include "dear/comm/group/testing/values.h"

namespace dear::comm::testing {
namespace {

constexpr std::int64_t kOffset = 64;

// A sanitizer takes long for each, and has one of a kind: none, fewer than ranks, as many, and many.
std::vector<std::int64_t> all_counts(int ranks, const ConformanceOptions& options) {
  if (dear::testing::kSanitizer) return {0, 1, ranks, options.counts.back()};
  std::vector<std::int64_t> counts = {0, 1, ranks - 1, ranks, ranks + 1};
  counts.insert(counts.end(), options.counts.begin(), options.counts.end());
  return counts;
}

// Calls body(view, output) for every element type and count.
template <typename Body>
void for_each_view(Group& group, const ConformanceOptions& options, const Body& body) {
  const int ranks = group.size();
  const std::vector<std::int64_t> counts = all_counts(ranks, options);
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  Buffer buffer = group.allocate(kOffset + most * 8);
  Buffer output = group.allocate(most * 8);
  for (const DType dtype : options.dtypes) {
    for (const std::int64_t count : counts) {
      body(View{.buffer = buffer, .offset_bytes = kOffset, .count = count, .dtype = dtype},
           View{.buffer = output, .count = count, .dtype = dtype});
    }
  }
}

// Positive and negative ones of many magnitudes.
std::vector<float> random_floats(int rank, std::int64_t count) {
  std::mt19937 generator(static_cast<unsigned>(1234 + rank));
  std::uniform_real_distribution<float> exponent(-12, 12);
  std::uniform_real_distribution<float> sign(-1, 1);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = sign(generator) * std::exp2(exponent(generator));
  }
  return values;
}

// However they are cut, and whichever collectives do it.
void check_order_of_ranks(Group& group) {
  constexpr std::int64_t kCount = 6007;
  constexpr std::int64_t kBytes = kCount * 4;
  Buffer buffer = group.allocate(4 * kBytes);
  const std::vector<float> mine = random_floats(group.rank(), kCount);
  for (int copy = 0; copy < 4; ++copy) {
    std::memcpy(buffer.data() + copy * kBytes, mine.data(), kBytes);
  }
  group.all_reduce({.buffer = buffer, .count = kCount}, Reduction::average);
  group.reduce_scatter({.buffer = buffer, .offset_bytes = kBytes, .count = kCount}, Reduction::average);
  group.all_gather({.buffer = buffer, .offset_bytes = kBytes, .count = kCount});
  constexpr std::int64_t kCut = 1003;
  group.all_reduce({.buffer = buffer, .offset_bytes = 2 * kBytes, .count = kCut}, Reduction::average);
  group.all_reduce({.buffer = buffer, .offset_bytes = 2 * kBytes + 4 * kCut, .count = kCount - kCut},
                   Reduction::average);
  const int root = group.size() - 1;
  group.reduce({.buffer = buffer, .offset_bytes = 3 * kBytes, .count = kCount}, Reduction::average, root);
  group.barrier().wait();

  std::vector<float> sums = random_floats(0, kCount);
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::vector<float> next = random_floats(rank, kCount);
    std::transform(sums.begin(), sums.end(), next.begin(), sums.begin(), std::plus<>());
  }
  for (float& sum : sums) {
    sum /= static_cast<float>(group.size());
  }
  for (int copy = 0; copy < (group.rank() == root ? 4 : 3); ++copy) {
    // Bit for bit. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    EXPECT_EQ(std::memcmp(buffer.data() + copy * kBytes, sums.data(), kBytes), 0) << "copy " << copy;
  }
}

// A sum has the same bits when it is done again, and on every rank, and is close to the exact one.
void check_repetition(Group& group) {
  constexpr std::int64_t kCount = 6007;
  constexpr std::int64_t kBytes = kCount * 4;
  Buffer buffer = group.allocate(3 * kBytes);
  const auto view = [&](int copy) {
    return View{.buffer = buffer, .offset_bytes = copy * kBytes, .count = kCount};
  };
  const std::vector<float> mine = random_floats(group.rank(), kCount);
  for (int copy = 0; copy < 2; ++copy) {
    std::memcpy(buffer.data() + copy * kBytes, mine.data(), kBytes);
    group.all_reduce(view(copy), Reduction::sum).wait();
  }
  std::memcpy(buffer.data() + 2 * kBytes, buffer.data(), kBytes);
  group.broadcast(view(2), 0).wait();
  EXPECT_EQ(std::memcmp(buffer.data(), buffer.data() + kBytes, kBytes), 0) << "done again";
  EXPECT_EQ(std::memcmp(buffer.data(), buffer.data() + 2 * kBytes, kBytes), 0) << "on rank 0";

  std::vector<double> sums(static_cast<std::size_t>(kCount));
  std::vector<double> magnitudes(static_cast<std::size_t>(kCount));
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::vector<float> theirs = random_floats(rank, kCount);
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      sums[i] += static_cast<double>(theirs[i]);
      magnitudes[i] += std::abs(static_cast<double>(theirs[i]));
    }
  }
  // Each addition rounds by at most half of 2^-23 of what it adds to, which is at most the sum of magnitudes.
  const double rounding = group.size() * std::exp2(-24);
  for (std::int64_t i = 0; i < kCount; ++i) {
    const auto at = static_cast<std::size_t>(i);
    ASSERT_NEAR(load(DType::f32, buffer.data() + 4 * i), sums[at], rounding * magnitudes[at])
        << "element " << i;
  }
}

// Runs a request whose own shard lies in memory of this rank alone, and puts the result into the view. What
// the view has in that place meanwhile counts for nothing.
void run_with_shard_elsewhere(Group& group, Request request) {
  const View& view = request.view;
  const std::int64_t element = size_of(view.dtype);
  const Range own = shard_of(view.count, view.dtype, group.size(), group.rank());
  std::byte* const place = view.buffer.data() + view.offset_bytes + own.begin * element;
  std::vector<std::byte> from(place, place + own.size() * element), to(from.size());
  std::fill_n(place, from.size(), std::byte{0x55});
  request.own = {.from = from.data(), .to = to.data()};
  group.issue(request).wait();
  std::copy(to.begin(), to.end(), place);
}

}  // namespace

void check_reductions(Group& group, const ConformanceOptions& options) {
  const int ranks = group.size();
  const int rank = group.rank();
  for_each_view(group, options, [&](const View& view, const View&) {
    for (const Reduction reduction : options.reductions) {
      if (!obstacle_to(view.dtype, reduction).empty()) {
        EXPECT_THROW(group.reduce_scatter(view, reduction), ConfigError);
        continue;
      }
      std::vector<double> period;
      for (std::int64_t i = 0; i < kPeriod; ++i) {
        period.push_back(expected(view.dtype, reduction, ranks, i));
      }
      const auto reduced = [&](std::int64_t i) { return period[static_cast<std::size_t>(i % kPeriod)]; };
      fill(view, rank);
      group.reduce_scatter(view, reduction).wait();
      expect_shards(view, ranks, "reduce-scatter, " + name_of(reduction), [&](int owner, std::int64_t i) {
        return owner == rank ? reduced(i) : value_of(rank, i);
      });
      fill(view, rank);
      group.all_reduce(view, reduction).wait();
      expect_elements(view, "all-reduce, " + name_of(reduction), reduced);
      for (const Collective collective : {Collective::reduce_scatter, Collective::all_reduce}) {
        fill(view, rank);
        run_with_shard_elsewhere(group, {.collective = collective, .view = view, .reduction = reduction});
        expect_shards(
            view, ranks, "own shard elsewhere, " + name_of(reduction), [&](int owner, std::int64_t i) {
              return owner == rank || collective == Collective::all_reduce ? reduced(i) : value_of(rank, i);
            });
      }
      for (int root = 0; root < ranks; ++root) {
        fill(view, rank);
        group.reduce(view, reduction, root).wait();
        if (rank == root) expect_elements(view, "reduce, " + name_of(reduction), reduced);
      }
    }
  });
}

void check_unequal_shards(Group& group, const ConformanceOptions& options) {
  const int ranks = group.size();
  const int rank = group.rank();
  std::vector<double> growing, last(static_cast<std::size_t>(ranks));
  for (int one = 0; one < ranks; ++one) growing.push_back(one + 0.5);
  last.back() = 1;
  for (const ShardShares& shares : {shard_shares(growing), shard_shares(last)})
    for_each_view(group, options, [&](const View& view, const View&) {
      const Request gather{.collective = Collective::all_gather, .view = view, .shares = &shares};
      if (!group.takes_shares()) {
        EXPECT_THROW(group.issue(gather).wait(), ConfigError);
        return;
      }
      const auto each = [&](const std::string& what, const auto& expected_at) {
        for (int owner = 0; owner < ranks; ++owner)
          expect_range(view, shard_of(view.count, view.dtype, ranks, owner, &shares), what,
                       [&](std::int64_t i) { return expected_at(owner, i); });
      };
      fill(view, rank);
      group.issue(gather).wait();
      each("all-gather of unequal shards", value_of);
      if (!obstacle_to(view.dtype, Reduction::sum).empty()) return;
      for (const Collective collective : {Collective::reduce_scatter, Collective::all_reduce}) {
        fill(view, rank);
        group.issue({.collective = collective, .view = view, .shares = &shares}).wait();
        each("sum of unequal shards", [&](int owner, std::int64_t i) {
          return owner == rank || collective == Collective::all_reduce
                     ? expected(view.dtype, Reduction::sum, ranks, i)
                     : value_of(rank, i);
        });
      }
    });
}

void check_movements(Group& group, const ConformanceOptions& options) {
  const int ranks = group.size();
  const int rank = group.rank();
  for_each_view(group, options, [&](const View& view, const View& output) {
    fill(view, rank);
    group.all_gather(view).wait();
    expect_shards(view, ranks, "all-gather", value_of);

    for (int root = 0; root < ranks; ++root) {
      if (dear::testing::kSanitizer && root != view.count % ranks) continue;
      fill(view, rank);
      group.broadcast(view, root).wait();
      expect_elements(view, "broadcast", [&](std::int64_t i) { return value_of(root, i); });
    }

    if (view.count % ranks != 0) {
      EXPECT_THROW(group.all_to_all(view, output), ConfigError);
      return;
    }
    fill(view, rank);
    group.all_to_all(view, output).wait();
    const std::int64_t block = view.count / ranks;
    for (int peer = 0; peer < ranks; ++peer) {
      expect_range(output, {.begin = block * peer, .end = block * (peer + 1)}, "all-to-all",
                   [&](std::int64_t i) { return value_of(peer, block * rank + i - block * peer); });
    }
  });
  check_all_to_all_v(group, options);
  group.barrier().wait();
}

void check_in_flight(Group& group, const ConformanceOptions& /*options*/) {
  constexpr int kMany = 24;
  constexpr std::int64_t kRoom = 40'000 * 4;
  Buffer buffer = group.allocate(kMany * kRoom);
  const auto view = [&](int i) {
    return View{.buffer = buffer, .offset_bytes = kRoom * i, .count = i % 3 == 0 ? 40'000 : 501};
  };
  std::vector<Pending> pending;
  for (int i = 0; i < kMany; ++i) {
    fill(view(i), group.rank());
  }
  for (int i = 0; i < kMany; ++i) {
    pending.push_back(i % 2 == 0 ? group.all_reduce(view(i), Reduction::sum)
                                 : group.broadcast(view(i), i % group.size()));
  }
  for (int i = kMany - 1; i >= 0; --i) {
    const Timing timing = pending[static_cast<std::size_t>(i)].wait();
    EXPECT_LE(timing.begin, timing.end);
    expect_elements(view(i), "in flight", [&](std::int64_t at) {
      return i % 2 == 0 ? expected(DType::f32, Reduction::sum, group.size(), at)
                        : value_of(i % group.size(), at);
    });
  }
}

void check_rounding(Group& group, const ConformanceOptions& options) {
  check_repetition(group);
  if (options.order == Order::ranks) {
    check_order_of_ranks(group);
  }
}

void check_waiting(Group& group) {
  const std::vector<pid_t> processes = comm::all_gather_values(group, ::getpid());
  const Group told = group.duplicate();
  if (group.rank() > 0) {
    const Pending late = group.barrier();
    told.barrier().wait();  // tells rank 0 that the wait has begun
    late.wait();
    return;
  }
  told.barrier().wait();
  for (const pid_t process : std::set(processes.begin() + 1, processes.end())) {
    os::testing::await_sleep_of(process);
  }
  group.barrier().wait();
}

void check_shared_buffers(Group& group, const ConformanceOptions& options) {
  ASSERT_TRUE(group.shares_memory());
  const int ranks = group.size();
  const int rank = group.rank();
  const std::vector<std::int64_t> counts = all_counts(ranks, options);
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  const Buffer buffer = group.allocate_shared(kOffset + most * 8);
  EXPECT_TRUE(buffer.shared());
  for (const DType dtype : options.dtypes) {
    for (const std::int64_t count : counts) {
      const View view{.buffer = buffer, .offset_bytes = kOffset, .count = count, .dtype = dtype};
      // Shards carry their owner's mark, and another one in each round: nothing of a round may come late.
      for (int round = 0; round < 3; ++round) {
        const Range own = shard_of(count, dtype, ranks, rank);
        for (std::int64_t i = own.begin; i < own.end; ++i)
          store(dtype, buffer.data() + kOffset + i * size_of(dtype), value_of(rank + round, i));
        group.all_gather(view).wait();
        expect_shards(view, ranks, "all-gather of what is shared",
                      [&](int owner, std::int64_t i) { return value_of(owner + round, i); });
        group.barrier().wait();  // all have read, before the next round writes
      }
    }
  }
  // It is one memory: a write that no all-gather carries is seen as well.
  if (rank == ranks - 1) store(DType::f32, buffer.data(), 42);
  group.barrier().wait();
  EXPECT_EQ(load(DType::f32, buffer.data()), 42);
  const View view{.buffer = buffer, .count = ranks};
  const Buffer own = group.allocate(ranks * 4);
  EXPECT_THROW(group.all_reduce(view, Reduction::sum), ConfigError);
  EXPECT_THROW(group.reduce_scatter(view, Reduction::sum), ConfigError);
  EXPECT_THROW(group.broadcast(view, 0), ConfigError);
  EXPECT_THROW(group.all_to_all(view, {.buffer = own, .count = ranks}), ConfigError);
  EXPECT_THROW(group.all_to_all({.buffer = own, .count = ranks}, view), ConfigError);
  EXPECT_THROW(static_cast<void>(group.allocate_shared(-1)), ConfigError);
  group.barrier().wait();
}

void check_group(Group& group, const ConformanceOptions& options) {
  check_reductions(group, options);
  check_movements(group, options);
  check_in_flight(group, options);
  check_rounding(group, options);
}

namespace {

View filled(const Group& group, const Buffer& buffer) {
  const View view{.buffer = buffer, .count = buffer.bytes() / size_of(DType::f32)};
  fill(view, group.rank());
  return view;
}

void expect_sum(const Group& group, const View& view, const std::string& what) {
  expect_range(view, {.begin = 0, .end = view.count}, what,
               [&](std::int64_t i) { return expected(DType::f32, Reduction::sum, group.size(), i); });
}

void check_sum(const Group& group, const std::string& what) {
  for (const std::int64_t count : {3, 1000, 30'000}) {
    const View view = filled(group, group.allocate(count * size_of(DType::f32)));
    group.all_reduce(view, Reduction::sum).wait();
    expect_sum(group, view, what);
  }
  check_all_to_all_v(group, {.dtypes = {DType::f32}});
}

}  // namespace

void check_parts(const Group& group) {
  const int rank = group.rank(), size = group.size();
  std::optional<Group> same = group.duplicate();
  EXPECT_EQ(same->rank(), rank);
  EXPECT_EQ(same->size(), size);
  // At once, and not in one order on all ranks.
  const View here = filled(group, group.allocate(200'000)), there = filled(*same, same->allocate(200'000));
  for (int round = 0; round < 5; ++round) {
    filled(group, here.buffer);
    filled(*same, there.buffer);
    Pending first, second;
    if (rank % 2 == 0) {
      first = group.all_reduce(here, Reduction::sum);
      second = same->all_reduce(there, Reduction::sum);
    } else {
      second = same->all_reduce(there, Reduction::sum);
      first = group.all_reduce(here, Reduction::sum);
    }
    first.wait();
    second.wait();
    expect_sum(group, here, "group");
    expect_sum(*same, there, "duplicate");
  }
  same.reset();
  // By color, backwards.
  const std::optional<Group> half = group.split(rank % 2, -rank);
  ASSERT_TRUE(half);
  EXPECT_EQ(half->size(), (size + 1 - rank % 2) / 2);
  EXPECT_EQ(half->rank(), (size - 1 - rank) / 2);
  check_sum(*half, "half");
  // Some ranks stay out, and a part of a part outlives it.
  std::optional<Group> rest = group.split(rank == 0 ? -1 : 7, 0);
  EXPECT_EQ(rest.has_value(), rank != 0);
  if (rest) {
    EXPECT_EQ(rest->rank(), rank - 1);
    const std::optional<Group> inner = rest->split(0, -rank);
    rest.reset();
    EXPECT_EQ(inner->rank(), size - 1 - rank);
    check_sum(*inner, "part of a part");
    check_sum(*half, "half");
  } else {
    check_sum(*half, "half");
  }
  check_sum(group, "group");
}

}  // namespace dear::comm::testing
