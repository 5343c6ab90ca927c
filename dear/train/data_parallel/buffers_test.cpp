// Buffers become rank 0's, their mean, or stay each rank's own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/join.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::buffers_test {
namespace {

using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::run_all;
using train::testing::run_each;

// A weight, and what a layer of BatchNorm has.
struct Counting {
  Counting(const Group& group, BufferSync how, const std::string& policy = "dear")
      : sgd({weight}, torch::optim::SGDOptions(1.0)),
        dp(Model{.parameters = {{"weight", weight}},
                 .buffers = {{"mean", mean}, {"narrow", narrow}, {"count", count}}},
           make_optimizer(sgd), group, {.policy = policy, .buckets = given(Fusion()), .buffers = how}) {}
  void step(double by) {
    mean += by;
    narrow += by;
    count += 1;
    weight.sum().backward();
    dp.step();
  }
  [[nodiscard]] std::vector<double> values() const {
    return {mean[1].item<double>(), narrow[2].item<double>(), count.item<double>()};
  }
  torch::Tensor weight = torch::zeros({4}, torch::requires_grad());
  torch::Tensor mean = torch::zeros({3}, torch::kDouble), narrow = torch::zeros({5}, torch::kBFloat16);
  torch::Tensor count = torch::zeros({}, torch::kLong);
  torch::optim::SGD sgd;
  DataParallel dp;
};

TEST(Buffers, BecomeWhatWasAskedFor) {
  struct Row {
    BufferSync how;
    std::vector<std::vector<double>> expected;  // by rank, after two steps by 1 + rank
  };
  const std::vector<Row> rows{
      {BufferSync::at_construction, {{2, 2, 2}, {4, 4, 2}, {6, 6, 2}}},
      {BufferSync::at_synchronize, {{2, 2, 2}, {2, 2, 2}, {2, 2, 2}}},
      {BufferSync::averaged, {{4, 4, 2}, {4, 4, 2}, {4, 4, 2}}},
  };
  for (const Row& row : rows) {
    run_all(3, [&](int rank, Group group) {
      Counting model(group, row.how);
      for (int step = 0; step < 2; ++step) model.step(1 + rank);
      model.dp.synchronize();
      EXPECT_EQ(model.values(), row.expected[rank]);
    });
  }
}

TEST(Buffers, AreRank0sBeforeEachForward) {
  for (const char* policy : {"dear", "dear-eager", "wfbp"}) {
    run_all(3, [&](int rank, Group group) {
      Counting model(group, BufferSync::at_forward, policy);
      for (int step = 0; step < 4; ++step) {
        model.dp.broadcast_buffers();  // while parameters of the last step are on the wire
        EXPECT_EQ(model.values()[0], step);
        model.step(1 + rank);
      }
      const auto guard = model.dp.no_sync();
      model.dp.broadcast_buffers();
      EXPECT_EQ(model.values()[0], 3 + 1 + rank);
    });
  }
}

TEST(Buffers, AreThoseOfARankWithDataInAJoin) {
  run_all(2, [&](int rank, Group group) {
    Counting model(group, BufferSync::at_forward);
    Join join(model.dp);
    for (int step = 0; step < 2 + 2 * rank; ++step) {
      model.dp.broadcast_buffers();
      model.step(1 + rank);
    }
    join.end();
    EXPECT_EQ(model.values()[0], rank == 0 ? 5 : 7);
    EXPECT_EQ(join.shadowed(), rank == 0 ? 2 : 0);
  });
}

// Layers of which a program replaces buffers, registers some later, and gives one another shape.
struct Renewed : torch::nn::Module {
  Renewed() { register_parameter("weight", weight); }
  torch::Tensor weight = torch::zeros({4}, torch::requires_grad());
};

TEST(Buffers, ThatAreReplacedRegisteredOrReshapedAreLookedUp) {
  for (const BufferSync how : {BufferSync::at_synchronize, BufferSync::averaged, BufferSync::at_forward}) {
    run_all(2, [&](int rank, Group group) {
      Renewed model;
      torch::optim::SGD sgd(model.parameters(), 0.1);
      DataParallel dp(model, sgd, group, {.buckets = given(Fusion()), .buffers = how});
      const auto step_with = [&](const std::string& name, const torch::Tensor& values) {
        model.weight.sum().backward();
        dp.step();
        if (torch::Tensor* known = model.named_buffers(false).find(name)) {
          known->set_data(values);
        } else {
          model.register_buffer(name, values);
        }
      };
      const auto value = [&](const std::string& name) {
        how == BufferSync::at_forward ? dp.broadcast_buffers() : dp.synchronize();
        return model.named_buffers()[name][1].item<double>();
      };
      const double expected = how == BufferSync::averaged ? 1.5 : 1;
      step_with("late", torch::full({3}, 1.0 + rank));
      EXPECT_EQ(value("late"), expected);
      step_with("later", torch::full({2}, 1.0 + rank, torch::kDouble));
      EXPECT_EQ(value("later"), expected);
      step_with("late", torch::full({70}, 11.0 + rank));
      EXPECT_EQ(value("late"), 10 + expected);
    });
  }
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    Renewed model;
    torch::optim::SGD sgd(model.parameters(), 0.1);
    DataParallel dp(model, sgd, group, {.buckets = given(Fusion())});
    model.weight.sum().backward();
    dp.step();
    model.register_buffer("late", torch::zeros({3 + rank}));
    dp.synchronize();
  });
  for (const auto& error : errors)
    EXPECT_THAT(message_of<MismatchError>([&] { std::rethrow_exception(error); }), HasSubstr("late"));
}

TEST(Buffers, AreNotBroadcastUnasked) {
  run_all(2, [](int, Group group) {
    Counting model(group, BufferSync::averaged);
    EXPECT_THAT(message_of<ConfigError>([&] { model.dp.broadcast_buffers(); }), HasSubstr("at_forward"));
  });
}

}  // namespace
}  // namespace dear::buffers_test
