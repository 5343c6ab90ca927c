#include "dear/systems/edge/block_task.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::systems::edge::block_task_test {
namespace {

using ::testing::HasSubstr;

class Tasks : public ::testing::TestWithParam<BlockTaskShape> {};

std::vector<double> somewhere(const BlockTask& task) {
  std::vector<double> model = task.start();
  for (std::size_t i = 0; i < model.size(); ++i) model[i] += 0.1 * std::sin(3.0 * static_cast<double>(i + 1));
  return model;
}

TEST_P(Tasks, HaveTheGradientOfTheirLoss) {
  const BlockTask task(GetParam());
  std::vector<double> model = somewhere(task);
  const std::vector<double> gradient = task.whole_gradient(model);
  constexpr double kStep = 1e-6;
  for (std::size_t i = 0; i < model.size(); i += 7) {
    const double at = model[i];
    model[i] = at + kStep;
    const double above = task.loss(model);
    model[i] = at - kStep;
    const double below = task.loss(model);
    model[i] = at;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-8) << i;
  }
}

TEST_P(Tasks, HaveAGradientThatIsTheSumOfItsBlocksOnItsParts) {
  const BlockTask task(GetParam());
  const std::vector<double> model = somewhere(task);
  const std::vector<double> whole = task.whole_gradient(model);
  const auto width = static_cast<std::size_t>(task.width());
  const std::int64_t borders[]{0, 5, 6, task.shape().units};
  for (int block = 0; block < 3; ++block) {
    const Range units{.begin = borders[block], .end = borders[block + 1]};
    const std::size_t from = static_cast<std::size_t>(units.begin) * width,
                      size = static_cast<std::size_t>(units.size()) * width;
    std::vector<double> sum(size);
    for (int part = 0; part < task.shape().parts; ++part) {
      std::vector<double> of_part(size, 1e9);
      task.gradient(task.shape().part(part), units, std::span(model).subspan(from, size),
                    task.margins(task.shape().part(part), model), of_part);
      for (std::size_t i = 0; i < size; ++i) sum[i] += of_part[i];
    }
    for (std::size_t i = 0; i < size; ++i)
      EXPECT_NEAR(sum[i] + task.shape().ridge * model[from + i], whole[from + i], 1e-14);
  }
}

TEST_P(Tasks, AreLearnt) {
  const BlockTask task(GetParam());
  std::vector<double> model = task.start();
  const double begin = task.loss(model);
  for (int step = 0; step < 200; ++step) {
    const std::vector<double> gradient = task.whole_gradient(model);
    for (std::size_t i = 0; i < model.size(); ++i) model[i] -= gradient[i];
  }
  EXPECT_LT(task.loss(model), 0.9 * begin);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Tasks,
    ::testing::Values(BlockTaskShape{.units = 60, .parts = 3, .samples = 50, .nonzeros = 8},
                      BlockTaskShape{
                          .model = "network", .units = 9, .parts = 2, .samples = 41, .features = 4}),
    [](const auto& test) { return std::string(test.param.model); });

TEST(BlockTask, RefusesWhatCannotBe) {
  const auto refusal = [](const BlockTaskShape& shape) {
    try {
      const BlockTask task(shape);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({.model = "tree"}), HasSubstr("'tree'"));
  EXPECT_THAT(refusal({.units = 0}), HasSubstr("0 units"));
  EXPECT_THAT(refusal({.parts = 3, .samples = 2}), HasSubstr("2 samples in 3 parts"));
  EXPECT_THAT(refusal({.nonzeros = 0}), HasSubstr("features"));
  EXPECT_THAT(refusal({.ridge = -1}), HasSubstr("-1"));
}

}  // namespace
}  // namespace dear::systems::edge::block_task_test
