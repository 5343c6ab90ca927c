#include "studies/training/averaging.h"

#include "studies/training/gaussian.h"
#include "studies/training/layers.h"
#include "studies/training/threads.h"
#include <atomic>
#include <cmath>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/draw.h"
#include "dear/schedule/codec/sketch_shape.h"

namespace dear::studies::training::averaging_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Gradients = std::vector<std::vector<float>>;

constexpr std::size_t kWorkers = 3;
constexpr std::int64_t kElements = 8000;

// One in fifty elements of each worker is not zero, in every step others.
Gradients sparse(std::uint64_t step) {
  Gradients gradients(kWorkers, std::vector<float>(kElements));
  for (std::size_t worker = 0; worker < kWorkers; ++worker) {
    codec::Draw draw(7, static_cast<std::int64_t>(step), worker);
    for (float& value : gradients[worker])
      if (draw.below(50) == 0) value = draw.uniform();
  }
  return gradients;
}

std::vector<float> dense_mean(const Gradients& gradients) {
  std::vector<float> mean(gradients.front().size());
  average_dense(gradients, mean);
  return mean;
}

TEST(Averaging, OfSketchesIsDenseAndSendsLess) {
  const double dense_bytes = codec::dense_bytes_sent(kElements, kWorkers);
  for (const char* const text : {"sketch", "sketch,exact", "sketch,block=2", "sketch,index=bloom"}) {
    const auto averaging =
        make_averaging({{0, 5000}, {5000, kElements}}, kWorkers, Compression::parse(text), 1);
    std::vector<float> mean(kElements, 5);
    for (std::uint64_t step = 0; step < 6; ++step) {
      Gradients gradients = sparse(step);
      const std::vector<float> expected = dense_mean(gradients);
      const double bytes = averaging->average(gradients, {}, static_cast<std::int64_t>(step), mean);
      for (std::size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR(mean[i], expected[i], 1e-6) << text;
      if (step == 0) {
        EXPECT_EQ(bytes, dense_bytes);
      } else {
        EXPECT_LT(bytes, dense_bytes / 2) << text << " in step " << step;
      }
    }
  }
}

// Gradients that a sketch cannot hold travel dense in the same step, and the next sketch is sized for them.
TEST(Averaging, OfSketchesThatCannotBeReadIsDense) {
  const auto averaging = make_averaging({{0, kElements}}, kWorkers, Compression::parse("sketch,block=1"), 1);
  const double dense_bytes = codec::dense_bytes_sent(kElements, kWorkers);
  std::vector<float> mean(kElements);
  Gradients few(kWorkers, std::vector<float>(kElements));
  few[0][17] = 1;
  averaging->average(few, {}, 0, mean);
  Gradients many = sparse(1);
  const std::vector<float> expected = dense_mean(many);
  EXPECT_GT(averaging->average(many, {}, 1, mean), dense_bytes);
  EXPECT_EQ(mean, expected);
  Gradients again = sparse(1);
  EXPECT_LT(averaging->average(again, {}, 2, mean), dense_bytes);
  Gradients ones(kWorkers, std::vector<float>(kElements, 1));
  averaging->average(ones, {}, 3, mean);
  EXPECT_THAT(mean, Each(1));
  Gradients infinite = sparse(1);
  infinite[1][0] = INFINITY;
  averaging->average(infinite, {}, 4, mean);
  EXPECT_EQ(mean[0], INFINITY);
}

TEST(Averaging, SendsTheBytesOfItsPayload) {
  const auto bytes_of = [](const char* text) {
    Gradients gradients(4, std::vector<float>(1000, 1));
    std::vector<float> mean(1000), parameters(1000);
    return make_averaging({{0, 1000}}, 4, Compression::parse(text), 1)
        ->average(gradients, parameters, 0, mean);
  };
  EXPECT_DOUBLE_EQ(bytes_of("random-k:0.1"), 2 * 0.75 * 400);
  EXPECT_DOUBLE_EQ(bytes_of("top-k:0.1"), 3 * 800);
}

TEST(Averaging, DecaysWeightsOnEachWorker) {
  Gradients gradients(2, std::vector<float>(100));
  const std::vector<float> parameters(100, 4);
  std::vector<float> mean(100);
  make_averaging({{0, 100}}, 2, Compression::parse("random-k:1,decay=0.5"), 1)
      ->average(gradients, parameters, 0, mean);
  EXPECT_THAT(mean, Each(2));
}

TEST(Averaging, RefusesWhatIsNotStudied) {
  for (const char* const text : {"low-rank:4", "fp16", "bf16"})
    EXPECT_THAT([&] { make_averaging({{0, 100}}, 2, Compression::parse(text), 1); },
                ThrowsMessage<ConfigError>(HasSubstr("studied")));
}

TEST(Layers, AreThoseOfTheDefinition) {
  const std::vector<float> inputs{1, 2, 3, 4}, weights{1, 0, -1, 2, 1, 3}, bias{0.5F, 0, -20};
  std::vector<float> outputs;
  affine(inputs, 2, weights, bias, outputs);
  EXPECT_THAT(outputs, ElementsAre(5.5F, 2, -15, 11.5F, 4, -11));
  rectify(outputs);
  EXPECT_THAT(outputs, ElementsAre(5.5F, 2, 0, 11.5F, 4, 0));
  std::vector<float> gradient(6, 1), transposed, of_inputs;
  rectify_back(outputs, gradient);
  EXPECT_THAT(gradient, ElementsAre(1, 1, 0, 1, 1, 0));
  pass_back(gradient, weights, 2, transposed, of_inputs);
  EXPECT_THAT(of_inputs, ElementsAre(1, 3, 1, 3));
  std::vector<float> of_weights(6), of_bias(3);
  add_gradient(inputs, gradient, 2, of_weights.data(), of_bias.data());
  EXPECT_THAT(of_weights, ElementsAre(4, 4, 0, 6, 6, 0));
  EXPECT_THAT(of_bias, ElementsAre(2, 2, 0));
}

TEST(Gaussian, HasMeanZeroAndVarianceOne) {
  Gaussian gaussian(3, 4), same(3, 4);
  double sum = 0, squares = 0;
  for (int i = 0; i < 10'000; ++i) {
    const float value = gaussian();
    EXPECT_EQ(value, same());
    sum += static_cast<double>(value);
    squares += static_cast<double>(value * value);
  }
  EXPECT_NEAR(sum / 1e4, 0, 0.05);
  EXPECT_NEAR(squares / 1e4, 1, 0.06);
}

TEST(Threads, DoEachNumberOnceAndThrowTheFirstError) {
  std::vector<std::atomic<int>> done(100);
  for_each_in_threads(100, [&](std::size_t i) { ++done[i]; });
  for (const auto& times : done) EXPECT_EQ(times, 1);
  EXPECT_THROW(for_each_in_threads(10, [](std::size_t) { throw std::runtime_error("no"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace dear::studies::training::averaging_test
