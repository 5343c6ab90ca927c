#include "dear/schedule/codec/feedback.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/stability.h"

namespace dear::codec::feedback_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Floats = std::vector<float>;

Floats any_floats(std::mt19937_64& random, std::size_t size) {
  Floats values(size);
  for (float& value : values)
    value = static_cast<float>(static_cast<int>(random() % 200'001) - 100'000) / 37'000.0F;
  return values;
}

// Returns what top-k takes of a vector: ones where coordinates travel.
std::vector<bool> top(const Floats& values, std::size_t k) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(), [&](auto a, auto b) {
        return std::abs(values[a]) != std::abs(values[b]) ? std::abs(values[a]) > std::abs(values[b]) : a < b;
      });
  std::vector<bool> taken(values.size());
  for (std::size_t i = 0; i < k; ++i) taken[order[i]] = true;
  return taken;
}

void zero(std::span<float> values, const std::vector<bool>& taken) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (taken[i]) values[i] = 0;
  }
}

// The formulas of Compression, coordinate by coordinate.
struct Reference {
  Compression compression;
  Floats u, e;

  Floats prepare(const Floats& gradients, const Floats& parameters, Floats& next_u) const {
    const auto momentum = static_cast<float>(compression.momentum);
    const auto decay = static_cast<float>(compression.weight_decay);
    Floats m(gradients.size());
    next_u = u;
    for (std::size_t i = 0; i < m.size(); ++i) {
      const float g = decay == 0 ? gradients[i] : gradients[i] + decay * parameters[i];
      next_u[i] = momentum == 0 ? g : momentum * u[i] + g;
      m[i] = compression.nesterov ? g + momentum * next_u[i] : next_u[i];
      if (compression.feedback) m[i] += e[i];
    }
    return m;
  }
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

std::vector<Compression> every_form() {
  std::vector<Compression> forms;
  for (const double decay : {0.0, 1e-2}) {
    for (const double momentum : {0.0, 0.9}) {
      for (const int bits : {0, 1, 2, 3, 4, 5, 6, 7}) {
        Compression form{.feedback = (bits & 1) != 0,
                         .momentum = momentum,
                         .nesterov = (bits & 2) != 0,
                         .correction = (bits & 4) != 0,
                         .weight_decay = decay};
        if ((form.nesterov || form.correction) && momentum == 0) continue;
        if (form.correction && !form.feedback) continue;
        forms.push_back(form);
      }
    }
  }
  return forms;
}

TEST(Feedback, IsTheFormulaToTheBit) {
  std::mt19937_64 random(1);
  EXPECT_EQ(every_form().size(), 16U);
  for (const Compression& form : every_form()) {
    for (const std::size_t size : {0UL, 1UL, 7UL, 64UL, 1003UL}) {
      SCOPED_TRACE(fmt::format("{} of {}", form.text(), size));
      const Range all{0, static_cast<std::int64_t>(size)};
      Feedback feedback(form, all.end);
      Reference reference{.compression = form, .u = Floats(size), .e = Floats(size)};
      for (int step = 0; step < 6; ++step) {
        const Floats gradients = any_floats(random, size);
        const Floats parameters = any_floats(random, size);
        Floats next_u;
        const Floats m = reference.prepare(gradients, parameters, next_u);
        Floats ours = gradients;
        feedback.prepare(ours, parameters);
        EXPECT_TRUE(same_bits(ours, m));
        const auto taken = top(m, std::min<std::size_t>(size, 1 + size / 10));
        if (step % 3 == 1) {  // given up: the next step is as if this one had not been
          feedback.drop();
          continue;
        }
        zero(ours, taken);
        feedback.keep(ours, [&](std::span<float> values) { zero(values, taken); });
        if (form.correction) zero(next_u, taken);
        if (form.momentum != 0) reference.u = next_u;
        if (form.feedback) reference.e = ours;
        EXPECT_TRUE(same_bits(feedback.residual(all), form.feedback ? reference.e : Floats()));
        EXPECT_TRUE(same_bits(feedback.momentum(all), form.momentum != 0 ? reference.u : Floats()));
      }
    }
  }
}

TEST(Feedback, TouchesNothingWhereThereIsNothingToDo) {
  Feedback feedback(Compression{}, 3);
  Floats gradients{1, -0.0F, 3};
  for (int step = 0; step < 2; ++step) {
    feedback.prepare(gradients, {});
    EXPECT_TRUE(same_bits(gradients, Floats{1, -0.0F, 3}));
    feedback.keep({});
  }
  EXPECT_TRUE(feedback.residual({0, 3}).empty());
  EXPECT_TRUE(feedback.momentum({0, 3}).empty());
}

// A step of top-k whose outcome, what travelled, is returned.
Floats take_step(Feedback& feedback, const Floats& gradients, std::size_t k) {
  Floats m = gradients;
  feedback.prepare(m, {});
  const auto taken = top(m, k);
  Floats travelled(m.size());
  for (std::size_t i = 0; i < m.size(); ++i) travelled[i] = taken[i] ? m[i] : 0;
  zero(m, taken);
  feedback.keep(m, [&](std::span<float> values) { zero(values, taken); });
  return travelled;
}

TEST(Feedback, LosesNothingOfWhatItWasGiven) {
  constexpr std::size_t kSize = 500;
  std::mt19937_64 random(2);
  Feedback feedback(Compression::parse("top-k:0.01,ef"), kSize);
  std::vector<double> given(kSize);
  std::vector<double> sent(kSize);
  for (int step = 0; step < 200; ++step) {
    const Floats gradients = any_floats(random, kSize);
    const Floats travelled = take_step(feedback, gradients, 5);
    for (std::size_t i = 0; i < kSize; ++i) given[i] += gradients[i];
    for (std::size_t i = 0; i < kSize; ++i) sent[i] += travelled[i];
  }
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    const double still_here = feedback.residual({0, kSize})[i];
    difference += std::pow(sent[i] + still_here - given[i], 2);
    norm += std::pow(given[i], 2);
  }
  EXPECT_LT(std::sqrt(difference), 1e-6 * std::sqrt(norm));
}

// Takes a step with a codec, and returns what travelled; momentum must be 0 there afterwards, where it is
// masked.
template <class Codec>
Floats take_step_of(Codec& codec, Feedback& feedback, std::int64_t step, Floats values) {
  std::vector<std::byte> payload(1 << 15);
  feedback.prepare(values, {});
  codec.encode(values, step, payload.data());
  Floats travelled(values.size());
  if constexpr (std::is_same_v<Codec, Gatherable>) {
    codec.add(payload.data(), step, 1, travelled);
  } else {
    codec.decode(payload.data(), step, travelled);
  }
  codec.take_out(payload.data(), step, values);
  feedback.keep(values, [&](std::span<float> momentum) {
    codec.take_out(payload.data(), step, momentum);
    for (std::size_t i = 0; i < momentum.size(); ++i) {
      EXPECT_TRUE(travelled[i] == 0 || momentum[i] == 0);
    }
  });
  return travelled;
}

TEST(Feedback, LosesNothingWithAnyCodec) {
  constexpr std::size_t kSize = 600;
  for (const std::string text :
       {"random-k:0.1", "random-block:0.1", "random-k:0.1,own", "random-block:0.1,own", "top-k:0.1,warmup=9",
        "block-top-k:0.1", "fp16", "bf16", "top-k:0.1,momentum=0.5,correction",
        "random-k:0.1,momentum=0.5,correction"}) {
    SCOPED_TRACE(text);
    const auto form = Compression::parse(text + ",ef");
    const std::vector<Segment> segments{{.range = {0, 250}, .key = 1}, {.range = {250, 600}, .key = 2}};
    const auto reducible = form.gathers() ? nullptr : make_reducible(form, segments);
    const auto gatherable = form.gathers() ? make_gatherable(form, segments, 0) : nullptr;
    std::mt19937_64 random(5);
    Feedback feedback(form, kSize);
    std::vector<double> given(kSize);
    std::vector<double> sent(kSize);
    for (int step = 0; step < 20; ++step) {
      const Floats gradients = any_floats(random, kSize);
      const Floats travelled = form.gathers() ? take_step_of(*gatherable, feedback, step, gradients)
                                              : take_step_of(*reducible, feedback, step, gradients);
      for (std::size_t i = 0; i < kSize; ++i) given[i] += gradients[i];
      for (std::size_t i = 0; i < kSize; ++i) sent[i] += travelled[i];
    }
    if (form.correction) continue;  // momentum is given besides gradients
    for (std::size_t i = 0; i < kSize; ++i) {
      ASSERT_NEAR(sent[i] + feedback.residual({0, kSize})[i], given[i], 1e-4) << i;
    }
  }
}

TEST(Feedback, MovesByRangeToOtherBuckets) {
  constexpr std::size_t kSize = 60;
  const auto form = Compression::parse("top-k:0.1,ef,momentum=0.9,correction");
  std::mt19937_64 random(3);
  Feedback whole(form, kSize);
  for (int step = 0; step < 5; ++step) take_step(whole, any_floats(random, kSize), 6);
  // Elements 20 to 60 lie first in the other bucket, 0 to 20 last.
  Feedback other(form, kSize);
  for (const auto& [from, to] : {std::pair{Range{20, 60}, Range{0, 40}}, {Range{0, 20}, Range{40, 60}}}) {
    std::ranges::copy(whole.residual(from), other.residual(to).begin());
    std::ranges::copy(whole.momentum(from), other.momentum(to).begin());
  }
  for (int step = 0; step < 5; ++step) {
    Floats gradients = any_floats(random, kSize);
    Floats travelled = take_step(whole, gradients, 6);
    std::ranges::rotate(gradients, gradients.begin() + 20);
    std::ranges::rotate(travelled, travelled.begin() + 20);
    EXPECT_TRUE(same_bits(take_step(other, gradients, 6), travelled));
  }
}

TEST(Feedback, RefusesOtherSizesAndOrders) {
  const auto says = [](const char* word) { return ThrowsMessage<ConfigError>(HasSubstr(word)); };
  EXPECT_THAT([] { Feedback(Compression{.ratio = 2}, 3); }, says("ratio"));
  EXPECT_THAT([] { Feedback(Compression{}, -1); }, says("-1"));
  Feedback feedback(Compression::parse("top-k,ef,momentum=0.9,correction,decay=0.1"), 3);
  EXPECT_EQ(feedback.elements(), 3);
  Floats three{1, 2, 3};
  Floats two{1, 2};
  EXPECT_THAT([&] { feedback.keep(three); }, says("prepare"));
  EXPECT_THAT([&] { feedback.prepare(two, three); }, says("gradients"));
  EXPECT_THAT([&] { feedback.prepare(three, two); }, says("parameters"));
  EXPECT_THAT([&] { feedback.prepare(three, {}); }, says("parameters"));
  feedback.prepare(three, three);
  const auto take_out = [](std::span<float> /*values*/) {};
  EXPECT_THAT([&] { feedback.keep(two, take_out); }, says("remainder"));
  EXPECT_THAT([&] { feedback.keep({}, take_out); }, says("remainder"));
  EXPECT_THAT([&] { feedback.keep(three); }, says("take_out"));
  feedback.keep(three, take_out);
  EXPECT_THAT([&] { feedback.keep(three, take_out); }, says("prepare"));
  feedback.prepare(three, three);
  feedback.drop();
  EXPECT_THAT([&] { feedback.keep(three, take_out); }, says("prepare"));
  for (const Range range : {Range{-1, 2}, Range{0, 4}, Range{2, 1}}) {
    EXPECT_THAT([&] { feedback.residual(range); }, says("0 to 3"));
    EXPECT_THAT([&] { feedback.momentum(range); }, says("0 to 3"));
  }
}

TEST(Feedback, PreparedOnceMoreTakesTheLastGradients) {
  Feedback feedback(Compression::parse("top-k,momentum=0.5"), 1);
  for (const float gradient : {8.0F, 3.0F}) {
    Floats values{gradient};
    feedback.prepare(values, {});
    EXPECT_EQ(values[0], gradient);
  }
  feedback.keep({});
  EXPECT_EQ(feedback.momentum({0, 1})[0], 3.0F);
}

TEST(Feedback, IsStableUpToTheLimit) {
  for (const double p : {0.01, 0.1, 0.25, 0.5, 1.0}) {
    EXPECT_NEAR(stability_limit({Compression::parse("random-k,ef")}, p) / (2 * p / (2 - p)), 1, 1e-4)
        << "p = " << p;
  }
  EXPECT_NEAR(stability_limit({Compression::parse("random-k")}, 0.1), 2, 1e-4);  // without feedback
}

// Momentum before the communication moves the limit as momentum after it does, and where everything travels
// to that of gradient descent, 2 (1 + momentum).
TEST(Feedback, MomentumMovesTheLimit) {
  const ParabolaDescent before{Compression::parse("random-k,ef,momentum=0.9")};
  const ParabolaDescent after{.compression = Compression::parse("random-k,ef"), .momentum_after = 0.9};
  for (const double p : {0.01, 0.1, 0.5}) {
    EXPECT_NEAR(stability_limit(before, p) / stability_limit(after, p), 1, 1e-3) << "p = " << p;
  }
  EXPECT_NEAR(stability_limit(before, 1), 3.8, 1e-4);
  EXPECT_NEAR(stability_limit(after, 1), 3.8, 1e-4);
}

// The mean square of many parameters whose gradients travel independently, after some steps from 1.
double mean_square_after(int steps, double learning_rate, double p) {
  constexpr std::size_t kSize = 20'000;
  std::mt19937_64 random(4);
  const auto threshold = static_cast<std::uint64_t>(p * 0x1p63);
  Feedback feedback(Compression::parse("random-k,ef"), static_cast<std::int64_t>(kSize));
  Floats x(kSize, 1);
  for (int step = 0; step < steps; ++step) {
    Floats m = x;  // the gradient of x^2/2
    feedback.prepare(m, {});
    for (std::size_t i = 0; i < kSize; ++i) {
      if (random() >> 1 >= threshold) continue;
      x[i] -= static_cast<float>(learning_rate) * m[i];
      m[i] = 0;
    }
    feedback.keep(m);
  }
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return sum / static_cast<double>(kSize);
}

double expected_mean_square(int steps, double learning_rate, double p) {
  const MomentMatrix matrix = moment_matrix({Compression::parse("random-k,ef")}, learning_rate, p);
  std::array<double, 9> now{1};
  for (int step = 0; step < steps; ++step) {
    std::array<double, 9> next{};
    for (std::size_t i = 0; i < 9; ++i) {
      for (std::size_t j = 0; j < 9; ++j) next[i] += matrix[i][j] * now[j];
    }
    now = next;
  }
  return now[0];
}

TEST(Feedback, RandomStepsShrinkBelowTheLimitAndGrowAboveIt) {
  for (const double p : {0.1, 0.5}) {
    const double limit = 2 * p / (2 - p);
    const int steps = static_cast<int>(5 / p);
    const double shrunk = mean_square_after(steps, 0.7 * limit, p);
    EXPECT_NEAR(shrunk / expected_mean_square(steps, 0.7 * limit, p), 1, 0.2) << "p = " << p;
    EXPECT_LT(shrunk, 0.5) << "p = " << p;
    EXPECT_GT(mean_square_after(steps, 1.7 * limit, p), 2) << "p = " << p;
  }
}

}  // namespace
}  // namespace dear::codec::feedback_test
