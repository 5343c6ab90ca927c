#include "dear/comm/buckets/encoded_bucket.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/buckets/layout.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/message_programs/program_backend.h"

namespace dear::buckets::encoded_bucket_test {
namespace {

// Channels that count the bytes of what is sent.
class Counting : public channels::Channels {
 public:
  Counting(std::unique_ptr<Channels> over, std::atomic<std::int64_t>& bytes)
      : over_(std::move(over)), bytes_(bytes) {}
  [[nodiscard]] int rank() const override { return over_->rank(); }
  [[nodiscard]] int size() const override { return over_->size(); }
  [[nodiscard]] std::string description() const override { return over_->description(); }
  void start(channels::Transfer& transfer) override {
    if (transfer.direction == channels::Transfer::Direction::send) bytes_ += transfer.bytes;
    over_->start(transfer);
  }
  bool progress() override { return over_->progress(); }
  void wait_until(const Describe& what, Deadline deadline, Deadline until) override {
    over_->wait_until(what, deadline, until);
  }
  void abort(const std::string& reason) noexcept override { over_->abort(reason); }

 private:
  std::unique_ptr<Channels> over_;
  std::atomic<std::int64_t>& bytes_;
};

// One rank's bucket, its last elements dense, whose steps a test takes one after the other.
struct Rank {
  Rank(const Compression& compression, std::int64_t encoded, std::int64_t elements, Group group_,
       std::atomic<std::int64_t>& wire_bytes)
      : group(std::move(group_)),
        sent(wire_bytes),
        gradients{.buffer = group.allocate(elements * 4), .count = elements},
        scheme(compression.scheme),
        gathers(compression.gathers()),
        is_exact(compression.sketch.exact),
        bucket(compression, {{.range = {0, encoded}, .key = 7, .rows = 64}},
               {{.buffer = group.allocate(elements * 4), .count = elements}, gradients, encoded}, group) {}

  [[nodiscard]] std::span<float> values() const {
    return {reinterpret_cast<float*>(gradients.buffer.data()), static_cast<std::size_t>(gradients.count)};
  }
  void send(Collective collective, std::uint8_t part) {
    const Request request = bucket.request(collective, part);
    if (bucket.may_ask_more(collective, part))
      group
          .issue(request,
                 [this, asked = false]() mutable {
                   return std::exchange(asked, true) ? std::nullopt : bucket.more();
                 },
                 {})
          .wait();
    else
      group.issue(request).wait();
  }
  void halves(std::uint8_t part) {
    send(Collective::reduce_scatter, part);
    send(Collective::all_gather, part);
  }
  // As the schedule of policy dear orders it.
  void step() {
    bucket.encode(0);
    std::uint8_t dense = 1;
    if (scheme == Scheme::sketch || scheme == Scheme::low_rank) {
      send(Collective::all_reduce, 0);
      bucket.encode(1);
      halves(1);
      dense = 2;
    } else if (gathers) {
      send(Collective::all_gather, 0);
    } else {
      halves(0);
    }
    halves(dense);
    bucket.decode();
  }

  Group group;
  std::atomic<std::int64_t>& sent;  // by this rank, on its channels
  View gradients;
  Scheme scheme;
  bool gathers, is_exact;
  EncodedBucket bucket;
};

void on_ranks(int ranks, const std::string& compression, std::int64_t encoded, std::int64_t elements,
              const std::function<void(int, Rank&)>& program) {
  auto channels = channels::testing::make_thread_channels(ranks);
  std::vector<std::atomic<std::int64_t>> bytes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      auto& sent = bytes[static_cast<std::size_t>(r)];
      Rank rank(Compression::parse(compression), encoded, elements,
                Group(message_programs::make_program_backend(
                          std::make_unique<Counting>(std::move(channels[static_cast<std::size_t>(r)]), sent),
                          {.reproducible = true}),
                      {}),
                sent);
      program(r, rank);
    });
  for (std::thread& thread : threads) thread.join();
}

constexpr std::int64_t kEncoded = 96 * 1024, kElements = kEncoded + 1536;

// Values of which one in `one_in` blocks of 16 elements is not zero on some rank.
void fill(std::span<float> values, int rank, int step, std::int64_t one_in = 1) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto block = static_cast<std::int64_t>(i / 16) * 2654435761 + step;
    const bool there = block % one_in == 0 && (block / one_in + rank) % 3 != 0;
    values[i] = there ? std::sin(static_cast<float>(i) * 0.37F + static_cast<float>(rank + 10 * step)) : 0;
  }
}

// What one rank sends at least: of n elements that add up 2 (P - 1)/P n values, of k that are gathered (P -
// 1) k pairs of an index and a value. Ranks of programs send a few headers of 100 bytes beside.
TEST(EncodedBucket, SendsTheBytesOfTheFormula) {
  for (const int ranks : {2, 4}) {
    const double share = 2.0 * (ranks - 1) / ranks, kept = 0.05 * kEncoded,
                 dense = 4 * (kElements - kEncoded) * share;
    const std::vector<std::pair<std::string, double>> formulas = {
        {"random-k:0.05", share * 4 * kept},
        {"random-block:0.05", share * 4 * kept},
        {"top-k:0.05", (ranks - 1) * 8 * kept},
        {"random-k:0.05,own", (ranks - 1) * 8 * kept},
        {"block-top-k:0.05", (ranks - 1) * 4 * kept},
        {"bf16", share * 2 * kEncoded},
        {"low-rank:2", share * 4 * 2 * (64 + kEncoded / 64)}};
    for (const auto& [scheme, formula] : formulas) {
      SCOPED_TRACE(scheme + " on " + std::to_string(ranks));
      on_ranks(ranks, scheme, kEncoded, kElements, [&, formula = formula](int r, Rank& rank) {
        fill(rank.values(), r, 0);
        const std::int64_t before = rank.sent;
        rank.step();
        const auto sent = static_cast<double>(rank.sent - before);
        EXPECT_NEAR(rank.bucket.counts().bytes, formula + dense, 1000);
        EXPECT_GE(sent, formula + dense - 1000);
        EXPECT_LE(sent, formula + dense + 100.0 * 40 * ranks);
      });
    }
  }
}

// The first step of a sketch is dense; then it carries a few keys, until the gradients become dense.
TEST(EncodedBucket, SketchesAreDenseMeansAndGoDenseWhereTheyMust) {
  for (const char* scheme : {"sketch", "sketch,exact", "sketch,block=1", "sketch,block=16,index=bloom"}) {
    SCOPED_TRACE(scheme);
    constexpr int kRanks = 3;
    on_ranks(kRanks, scheme, kEncoded, kElements, [&](int r, Rank& rank) {
      std::vector<float> mean(kElements), one(kElements);
      for (int step = 0; step < 12; ++step) {
        const std::int64_t one_in = step < 7 ? 40 : step < 9 ? 1 : 30;
        std::fill(mean.begin(), mean.end(), 0.0F);
        for (int other = 0; other < kRanks; ++other) {
          fill(one, other, step, one_in);
          for (std::size_t i = 0; i < one.size(); ++i) mean[i] += one[i] / kRanks;
        }
        fill(rank.values(), r, step, one_in);
        const double before = rank.bucket.counts().bytes;
        rank.step();
        float error = 0;
        for (std::size_t i = 0; i < one.size(); ++i)
          error = std::max(error, std::abs(rank.values()[i] - mean[i]));
        EXPECT_LE(error, 1e-5F) << step;
        const double dense = dense_bytes(kElements * 4, kRanks), sent = rank.bucket.counts().bytes - before;
        if (step >= 1 && step < 7) {
          EXPECT_LT(sent, dense / 5) << step;
        }
        if (step == 0 || step == 8) {
          EXPECT_NEAR(sent, dense, dense / 100) << step;
        }
      }
      EXPECT_GE(rank.bucket.counts().codec.dense_exchanges, 1);  // of a union that was too large
    });
  }
}

// NaN stay where they are, and the count of steps that came out with some tells of them.
TEST(EncodedBucket, ANaNIsReportedAndHarmsNoOther) {
  for (const char* scheme : {"sketch,block=16", "sketch,block=16,exact"}) {
    SCOPED_TRACE(scheme);
    on_ranks(2, scheme, kEncoded, kElements, [&](int r, Rank& rank) {
      for (int step = 0; step < 4; ++step) {
        fill(rank.values(), r, step, 40);
        if (r == 1 && step == 2) rank.values()[100] = std::numeric_limits<float>::quiet_NaN();
        rank.step();
        for (std::int64_t i = 0; i < kEncoded; ++i)
          ASSERT_EQ(std::isnan(rank.values()[static_cast<std::size_t>(i)]), step == 2 && i == 100) << step;
      }
      EXPECT_EQ(rank.bucket.counts().codec.dense_exchanges, rank.is_exact ? 1 : 0);
      EXPECT_EQ(rank.bucket.counts().codec.not_finite_rank, 1);
      EXPECT_EQ(rank.bucket.counts().not_finite, 1);
    });
  }
}

// Rows of 50 elements, which no block divides, of which a step has some; values of every kind.
void draw_rows(std::span<float> values, int rank, int step) {
  std::fill(values.begin(), values.end(), 0.0F);
  std::mt19937 shared(static_cast<std::uint32_t>(step)), own(static_cast<std::uint32_t>(7 * step + rank + 1));
  const auto once_in = [&](std::uint32_t times) { return own() % times == 0; };
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr int kWidth = 50;
  const std::uint32_t kind = shared() % 8;
  const float spike = kind == 0 ? 1e12F : kind == 1 ? kLargest : 1;
  for (std::size_t row = 0; row < values.size() / kWidth; ++row) {
    if (shared() % 12 != 0 || once_in(3)) continue;
    for (float& value : values.subspan(row * kWidth, kWidth)) {
      value = static_cast<float>(static_cast<std::int32_t>(own())) * 1e-12F;
      if (kind == 2) value *= 1e-36F;                                        // denormals
      if (kind == 3 && once_in(2)) value = static_cast<float>(rank) - 0.5F;  // cancels on two ranks
      if (once_in(20)) value = 0;
      if (once_in(30)) value = std::copysign(spike, value) * (once_in(2) ? 1.0F : 0.4F);
    }
  }
  if (kind == 1 && step % 2 == 0) values[7] = kLargest;  // the sum overflows, dense too
}

// What makes noise on zeros into full steps.
struct Adam {
  explicit Adam(std::size_t elements) : weights(elements, 0.5F), first(elements), second(elements) {}
  void step(std::span<const float> gradient, int number) {
    const float a = 1 - std::pow(0.9F, static_cast<float>(number)),
                b = 1 - std::pow(0.999F, static_cast<float>(number));
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (!std::isfinite(gradient[i])) continue;  // as a loss scaler does
      first[i] = 0.9F * first[i] + 0.1F * gradient[i];
      second[i] = 0.999F * second[i] + 0.001F * gradient[i] * gradient[i];
      weights[i] -= 0.001F * first[i] / a / (std::sqrt(second[i] / b) + 1e-30F);
    }
  }
  std::vector<float> weights, first, second;
};

// The bits of dense gradients, whatever they are: so any optimiser does what it does with dense ones.
TEST(EncodedBucket, SketchesAreTheBitsOfDenseGradients) {
  constexpr std::int64_t kRows = 1000;
  const int steps = testing::rounds(400);
  int first = 0;  // gradients are others for each scheme: 1600 in all
  for (const auto& [ranks, scheme] : std::vector<std::pair<int, std::string>>{
           {2, "sketch"}, {3, "sketch"}, {2, "sketch,exact"}, {3, "sketch,block=16,index=bloom"}}) {
    SCOPED_TRACE(scheme + " on " + std::to_string(ranks));
    on_ranks(ranks, scheme, kRows, kRows, [&](int r, Rank& rank) {
      const View dense{.buffer = rank.group.allocate(kRows * 4), .count = kRows};
      const std::span<float> mean{reinterpret_cast<float*>(dense.buffer.data()), kRows};
      Adam of_dense(kRows), of_sketch(kRows);
      std::vector<float> sgd(kRows), sgd_of_sketch(kRows);
      std::int64_t not_finite = 0;
      for (int step = 0; step < steps; ++step) {
        draw_rows(mean, r, first + step);
        std::copy(mean.begin(), mean.end(), rank.values().begin());
        rank.group.all_reduce(dense, Reduction::average).wait();
        rank.step();
        ASSERT_TRUE(std::equal(mean.begin(), mean.end(), rank.values().begin())) << step;
        not_finite +=
            std::all_of(mean.begin(), mean.end(), [](float one) { return std::isfinite(one); }) ? 0 : 1;
        if (r != 0) continue;
        of_dense.step(mean, step + 1);
        of_sketch.step(rank.values(), step + 1);
        for (std::size_t i = 0; i < mean.size(); ++i) {
          if (!std::isfinite(mean[i])) continue;
          sgd[i] -= 0.1F * mean[i];
          sgd_of_sketch[i] -= 0.1F * rank.values()[i];
        }
      }
      EXPECT_EQ(of_sketch.weights, of_dense.weights);
      EXPECT_EQ(sgd_of_sketch, sgd);
      const CompressionCounts counts = rank.bucket.counts();
      EXPECT_EQ(counts.not_finite, not_finite);
      if (steps < 400) return;   // too few for what follows
      EXPECT_GT(not_finite, 0);  // of sums that overflow in fp32
      // Most travelled as sketches. What fixed point cannot hold did not.
      EXPECT_LT(counts.codec.dense_exchanges, rank.is_exact ? steps / 2 : steps / 8);
      if (rank.is_exact) {
        EXPECT_GT(counts.codec.dense_exchanges, steps / 16);
      }
      EXPECT_LT(counts.bytes, 0.6 * counts.dense_bytes);
    });
    first += steps;
  }
}

// Rounded once, in whatever order ranks are added.
TEST(EncodedBucket, ExactSumsAreRoundedOnce) {
  constexpr int kRanks = 5;
  on_ranks(kRanks, "sketch,exact", kEncoded, kElements, [](int r, Rank& rank) {
    for (int step = 0; step < 4; ++step) {
      std::vector<double> sum(kElements);
      std::vector<float> one(kElements);
      for (int other = 0; other < kRanks; ++other) {
        fill(one, other, step, 40);
        for (std::size_t i = 0; i < one.size(); ++i) sum[i] += static_cast<double>(one[i]);
      }
      fill(rank.values(), r, step, 40);
      rank.step();
      for (std::size_t i = 0; step > 0 && i < kEncoded; ++i)
        ASSERT_EQ(rank.values()[i], static_cast<float>(sum[i]) / kRanks) << step << " " << i;
    }
    EXPECT_EQ(rank.bucket.counts().codec.dense_exchanges, 0);
  });
}

// Finite gradients that half precision cannot hold, and low rank cannot multiply, are reported.
TEST(EncodedBucket, WhatComesOutInfiniteIsCounted) {
  for (const auto& [scheme, large] : std::vector<std::pair<std::string, float>>{
           {"fp16", 7e4F}, {"bf16", 3.4e38F}, {"random-k:1,unbiased", 0}, {"low-rank:2", 1e38F}}) {
    SCOPED_TRACE(scheme);
    on_ranks(2, scheme, kEncoded, kElements, [&, large = large](int r, Rank& rank) {
      for (int step = 0; step < 4; ++step) {
        fill(rank.values(), r, step);
        if (step == 1) rank.values()[100] = large;
        rank.step();
        const std::int64_t found = rank.bucket.counts().not_finite;
        if (step == 0 || large == 0)
          EXPECT_EQ(found, 0);
        else if (rank.scheme == Scheme::low_rank)
          EXPECT_EQ(found, step);  // NaN stay in its factors
        else
          EXPECT_EQ(found, 1);
      }
    });
  }
}

TEST(EncodedBucket, AStepGivenUpLeavesNothingBehind) {
  on_ranks(2, "top-k:0.05,ef", kEncoded, kElements, [](int r, Rank& rank) {
    fill(rank.values(), r, 0);
    rank.step();
    const CompressionState before = rank.bucket.state(0);
    fill(rank.values(), r, 1);
    rank.bucket.encode(0);
    rank.send(Collective::all_gather, 0);
    rank.halves(1);
    rank.bucket.decode(false);
    EXPECT_EQ(rank.bucket.state(0), before);
    EXPECT_EQ(rank.bucket.step(), 1);
    EXPECT_GT(rank.bucket.squared_residual(), 0);
  });
}

TEST(EncodedBucket, RefusesTheStateOfAnother) {
  on_ranks(2, "top-k:0.05,ef", kEncoded, kElements, [](int, Rank& rank) {
    EXPECT_THROW(rank.bucket.set_state(0, {}), ConfigError);
    EXPECT_THROW(rank.bucket.set_state(0, {.residual = std::vector<float>(3)}), ConfigError);
  });
}

}  // namespace
}  // namespace dear::buckets::encoded_bucket_test
