// Parts of checkpoints, which are saved beside model and optimiser.

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/checkpoint/testing/job.h"

namespace dear::parts_test {
namespace {

using checkpoint::testing::Folder;
using checkpoint::testing::Job;
using ::testing::HasSubstr;
using train::testing::message_of;
using train::testing::run_all;

using Tensors = std::map<std::string, torch::Tensor>;

Tensors some(double first) {
  return {{"matrix", (first + torch::arange(12, torch::kFloat64)).view({3, 4}).t()},
          {"steps", torch::tensor(std::int64_t{7}, torch::kLong)},
          {"small", torch::ones({1}, torch::kFloat32)}};
}

CheckpointPart part(const std::string& name, Tensors saved, Tensors* loaded = nullptr) {
  return {.name = name,
          .save = [saved = std::move(saved)] { return saved; },
          .load = [loaded](const Tensors& tensors) { *loaded = tensors; }};
}

void expect_equal(const Tensors& found, const Tensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_EQ(found.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(torch::equal(found.at(name), tensor)) << name;
  }
}

class CheckpointParts : public ::testing::TestWithParam<CheckpointForm> {};

TEST_P(CheckpointParts, AreThereOnAnyNumberOfRanks) {
  for (const bool asynchronous : {false, true}) {
    const Folder folder;
    const auto options = [&](std::vector<CheckpointPart> parts) {
      return CheckpointsOptions{.directory = folder.path("saved"),
                                .form = GetParam(),
                                .asynchronous = asynchronous,
                                .parts = std::move(parts)};
    };
    run_all(2, [&](int, Group group) {
      Job job(group);
      Checkpoints checkpoints(*job.parallel, options({part("curvature", some(1)), part("else", some(5))}));
      job.steps(2);
      checkpoints.save({.step = 2});
      checkpoints.wait();
    });
    for (const int ranks : {1, 2, 3}) {
      run_all(ranks, [&](int, Group group) {
        Job job(group);
        Tensors curvature, other;
        Checkpoints checkpoints(*job.parallel,
                                options({part("else", {}, &other), part("curvature", {}, &curvature)}));
        EXPECT_EQ(checkpoints.resume().value().step, 2);
        expect_equal(curvature, some(1));
        expect_equal(other, some(5));
      });
    }
  }
}

TEST_P(CheckpointParts, ThatNobodyAsksForAreSaid) {
  const Folder folder;
  run_all(2, [&](int rank, Group group) {
    std::string said;
    Tensors other;
    const auto options = [&](std::vector<CheckpointPart> parts) {
      return CheckpointsOptions{.directory = folder.path("saved"),
                                .form = GetParam(),
                                .parts = std::move(parts),
                                .say = [&](const std::string& sentence) { said += sentence; }};
    };
    Job job(group);
    job.steps(1);
    {
      Checkpoints checkpoints(*job.parallel, options({part("curvature", some(1)), part("else", some(5))}));
      checkpoints.save({.step = 1});
    }
    Checkpoints checkpoints(*job.parallel, options({part("else", {}, &other)}));
    EXPECT_EQ(checkpoints.resume().value().step, 1);
    EXPECT_EQ(said.find("'curvature'") != std::string::npos, rank == 0) << said;
    EXPECT_EQ(said.find("'else'"), std::string::npos) << said;
  });
}

TEST_P(CheckpointParts, ThatAreNotThereAreSaid) {
  const Folder folder;
  run_all(2, [&](int rank, Group group) {
    std::string said;
    Tensors loaded{{"untouched", torch::ones({1})}};
    const auto options = [&](std::vector<CheckpointPart> parts) {
      return CheckpointsOptions{.directory = folder.path("saved"),
                                .form = GetParam(),
                                .parts = std::move(parts),
                                .say = [&](const std::string& sentence) { said += sentence; }};
    };
    Job job(group);
    job.steps(1);
    {
      Checkpoints checkpoints(*job.parallel, options({}));
      checkpoints.save({.step = 1});
    }
    Checkpoints checkpoints(*job.parallel, options({part("curvature", {}, &loaded)}));
    EXPECT_EQ(checkpoints.resume().value().step, 1);
    EXPECT_TRUE(loaded.contains("untouched"));
    EXPECT_EQ(said.find("'curvature'") != std::string::npos, rank == 0) << said;
  });
}

INSTANTIATE_TEST_SUITE_P(Forms, CheckpointParts,
                         ::testing::Values(CheckpointForm::one_file, CheckpointForm::a_shard_of_each_rank),
                         [](const auto& info) {
                           return info.param == CheckpointForm::one_file ? "OneFile" : "Shards";
                         });

TEST(CheckpointPartsTest, OfOneNameAreRefused) {
  const Folder folder;
  run_all(2, [&](int, Group group) {
    Job job(group);
    job.steps(1);
    EXPECT_THAT(message_of<ConfigError>([&] {
                  save_checkpoint(*job.parallel, folder.path("a.pt"), {.step = 1},
                                  {.parts = {part("twice", some(1)), part("twice", some(2))}});
                }),
                HasSubstr("'twice'"));
    Tensors loaded;
    save_checkpoint(*job.parallel, folder.path("a.pt"), {.step = 1}, {.parts = {part("once", some(3))}});
    load_checkpoint(*job.parallel, folder.path("a.pt"), {.parts = {part("once", {}, &loaded)}});
    expect_equal(loaded, some(3));
  });
}

}  // namespace
}  // namespace dear::parts_test
