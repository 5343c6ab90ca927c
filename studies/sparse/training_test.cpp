#include "studies/sparse/training.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/schedule/codec/draw.h"

namespace dear::studies::sparse::training_test {
namespace {

constexpr PerceptronShape kSmall{.inputs = 6, .hidden = 11, .classes = 3};

Task small_task(std::uint64_t seed) {
  return make_task({.model = kSmall, .samples_of_worker = 64, .samples_of_validation = 256}, seed);
}

TEST(Perceptron, OfTheStudyHasAsManyParametersAsItsTensors) {
  const PerceptronShape shape;
  EXPECT_EQ(shape.parameters(), 32 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10);
  std::int64_t end = 0;
  for (const Range& tensor : shape.tensors()) {
    EXPECT_EQ(tensor.begin, end);
    end = tensor.end;
  }
  EXPECT_EQ(shape.tensors().size(), 6U);
}

// Along random directions in each tensor, by central differences.
TEST(Perceptron, HasTheGradientOfItsLoss) {
  const Task task = small_task(3);
  Perceptron perceptron(kSmall);
  const Samples& samples = task.of_worker.front();
  std::vector<float> parameters = task.initial;
  codec::Draw random(1, 0, 0);
  for (float& value : parameters) value += 0.2F * random.uniform();  // biases too
  std::vector<float> gradient(parameters.size()), ignored(parameters.size());
  perceptron.loss_and_gradient(parameters, samples, gradient);
  for (const Range& tensor : kSmall.tensors()) {
    for (int direction = 0; direction < 5; ++direction) {
      std::vector<float> forward = parameters, backward = parameters;
      double expected = 0, norm = 0;
      for (auto i = static_cast<std::size_t>(tensor.begin); i < static_cast<std::size_t>(tensor.end); ++i) {
        const float step = random.uniform() / 256;
        forward[i] += step;
        backward[i] -= step;
        expected += 2.0 * step * gradient[i];
        norm += std::abs(2.0 * step * gradient[i]);
      }
      const double difference = perceptron.loss_and_gradient(forward, samples, ignored) -
                                perceptron.loss_and_gradient(backward, samples, ignored);
      EXPECT_GT(norm, 0);
      EXPECT_NEAR(difference, expected, 0.01 * norm + 1e-6) << "tensor at " << tensor.begin;
    }
  }
}

TEST(Task, IsThatOfItsSeed) {
  const Task one = small_task(1), same = small_task(1), other = small_task(2);
  EXPECT_EQ(one.initial, same.initial);
  EXPECT_EQ(one.test.inputs, same.test.inputs);
  EXPECT_EQ(one.test.labels, same.test.labels);
  EXPECT_NE(one.test.inputs, other.test.inputs);
  EXPECT_NE(one.test.inputs, one.validation.inputs);
  EXPECT_EQ(one.of_worker.size(), 4U);
  EXPECT_NE(one.of_worker[0].inputs, one.of_worker[1].inputs);
  double sum = 0, squares = 0;
  for (const float value : one.test.inputs) {
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(one.test.inputs.size());
  EXPECT_NEAR(sum / count, 0, 0.1);
  EXPECT_NEAR(squares / count, 1, 0.15);
}

TEST(Training, LearnsAndIsThatOfItsSeed) {
  const Task task = small_task(1);
  const TrainingOptions options{.learning_rate = 0.05, .steps = 200, .batch = 16};
  for (const char* const text :
       {"top-k:0.1,ef", "random-k:0.3", "random-block:0.3,own,ef", "block-top-k:0.3,scope=model"}) {
    const TrainedAccuracy first = train(task, Compression::parse(text), options);
    const TrainedAccuracy second = train(task, Compression::parse(text), options);
    EXPECT_EQ(first.test, second.test) << text;
    EXPECT_EQ(first.validation, second.validation) << text;
    EXPECT_FALSE(first.diverged) << text;
    EXPECT_GT(first.test, train(task, {}, {.steps = 0}).test) << text;
  }
}

// A ratio of 1 leaves nothing out, so that only rounding tells it from dense SGD.
TEST(Training, WithAllCoordinatesIsDense) {
  const Task task = small_task(1);
  const TrainingOptions options{.learning_rate = 0.05, .steps = 30, .batch = 16};
  const double dense = train(task, {}, options).test;
  for (const char* const text :
       {"top-k:1,ef", "random-k:1", "random-block:1,ef", "random-k:1,own", "block-top-k:1"})
    EXPECT_NEAR(train(task, Compression::parse(text), options).test, dense, 0.01) << text;
  // Momentum of each worker is that of their mean where all of it travels.
  EXPECT_NEAR(train(task, Compression::parse("top-k:1,momentum=0.9"), options).test, dense, 0.01);
}

TEST(Training, NamesMethodsWithTheirRatio) {
  EXPECT_EQ(name_of(Method{}), "dense");
  EXPECT_EQ(name_of(Compression::parse("top-k,ef")), "top-k:0.01,ef");
  EXPECT_EQ(name_of(Compression::parse("fp16")), "fp16");
  EXPECT_EQ(name_of(Compression::parse("random-k:0.25,own")), "random-k:0.25,own");
}

// Where all coordinates travel, it does not matter on which side of the communication something acts.
TEST(Training, WithAllCoordinatesHasDecayAndNesterovOnEitherSide) {
  const Task task = small_task(1);
  TrainingOptions after{.learning_rate = 0.05, .steps = 30, .batch = 16};
  after.optimiser.nesterov = true;
  after.optimiser.decay = 0.02;
  const double test = train(task, {}, after).test;
  EXPECT_NEAR(train(task, Compression::parse("top-k:1,momentum=0.9,nesterov,decay=0.02"),
                    {.learning_rate = 0.05, .steps = 30, .batch = 16})
                  .test,
              test, 0.01);
  after.optimiser.decay = 1;
  EXPECT_NE(train(task, {}, after).test, test);
}

TEST(Training, SaysThatItDiverged) {
  const TrainedAccuracy accuracy = train(small_task(1), {}, {.learning_rate = 1e20, .steps = 10, .batch = 4});
  EXPECT_TRUE(accuracy.diverged);
}

}  // namespace
}  // namespace dear::studies::sparse::training_test
