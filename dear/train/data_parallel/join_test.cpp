// Ranks with different numbers of batches, and batches of different sizes: as in one process on what there
// is.

#include "dear/train/data_parallel/join.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/data_parallel/testing/weights.h"

namespace dear::join_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::Batch;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::Weights;
using train::testing::what_of;

constexpr std::int64_t kFeatures = 7;

// In double precision; `spare` is used by rank 0 alone, `never` by none.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(kFeatures, 11));
    spare = register_module("spare", torch::nn::Linear(11, 3));
    never = register_module("never", torch::nn::Linear(11, 3));
    last = register_module("last", torch::nn::Linear(11, 3));
    to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& tensor : parameters())
      tensor.copy_(0.3 * torch::sin(torch::arange(tensor.numel(), torch::kFloat64)).view_as(tensor));
  }
  torch::Tensor forward(const Batch& batch, bool with_spare) {
    const torch::Tensor x = torch::tanh(first(batch.inputs.to(torch::kFloat64)));
    const torch::Tensor y = with_spare ? last(x) + spare(x) : last(x);
    return torch::mse_loss(y, batch.targets.to(torch::kFloat64));
  }
  torch::nn::Linear first{nullptr}, spare{nullptr}, never{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

torch::optim::AdamW adamw_of(Net& net) {
  return torch::optim::AdamW(net->parameters(), torch::optim::AdamWOptions(0.02).weight_decay(0.1));
}

void set_rate(torch::optim::Optimizer& optimizer, double rate) {
  static_cast<torch::optim::AdamWOptions&>(optimizer.param_groups()[0].options()).lr(rate);
}

std::vector<torch::Tensor> values_of(Net& net) {
  std::vector<torch::Tensor> values;
  for (const torch::Tensor& tensor : net->parameters()) values.push_back(tensor.detach().clone());
  return values;
}

void expect_near(const std::vector<torch::Tensor>& found, const std::vector<torch::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(torch::allclose(found[i], expected[i], 1e-10, 1e-10)) << "tensor " << i;
}

// In epoch 0 rank 0 has the fewest batches, in epoch 1 the most: one more from rank to rank. In epoch 2 the
// last rank has none.
int batches_of(int epoch, int rank, int ranks) {
  if (epoch == 0) return 2 + rank;
  if (epoch == 1) return 1 + ranks - rank;
  return rank == ranks - 1 ? 0 : 2;
}
constexpr int kEpochs = 3;

struct Case {
  int ranks;
  std::string policy = "dear";
  Divisor divisor = Divisor::all_ranks;
  bool samples = false;
  bool plan = false;
  bool changes = true;  // clips gradients, and gives a step up
};

// Of rank r in a step; where samples count they differ between ranks, and rank 1 may have none.
std::int64_t rows_of(const Case& one, int step, int rank) { return one.samples ? (2 * rank + step) % 4 : 2; }

bool clips(const Case& one, int step) { return one.changes && step == 1; }
bool gives_up(const Case& one, int step) { return one.changes && step == 2; }

std::vector<torch::Tensor> train_plainly(const Case& one) {
  Net net;
  torch::optim::AdamW adamw = adamw_of(net);
  int number = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (int step = 0;; ++step) {
      double present = 0;
      double samples = 0;
      for (int rank = 0; rank < one.ranks; ++rank) {
        if (step >= batches_of(epoch, rank, one.ranks)) continue;
        present += 1;
        samples += static_cast<double>(rows_of(one, step, rank));
      }
      if (present == 0) break;
      adamw.zero_grad();
      for (int rank = 0; rank < one.ranks; ++rank) {
        const std::int64_t count = rows_of(one, step, rank);
        if (step >= batches_of(epoch, rank, one.ranks) || count == 0) continue;
        const double weight = one.samples                         ? static_cast<double>(count) / samples
                              : one.divisor == Divisor::all_ranks ? 1.0 / one.ranks
                                                                  : 1.0 / present;
        (net->forward(rows(number, 10 * rank, count, kFeatures), rank == 0) * weight).backward();
      }
      set_rate(adamw, 0.02 / (1 + number));
      ++number;
      if (gives_up(one, step)) continue;
      if (clips(one, step)) {
        for (torch::Tensor& tensor : net->parameters())
          if (tensor.grad().defined()) tensor.mutable_grad().clamp_(-1e-3, 1e-3);
      }
      adamw.step();
    }
  }
  return values_of(net);
}

void expect_as_in_one_process(const Case& one) {
  const std::vector<torch::Tensor> expected = train_plainly(one);
  run_all(one.ranks, [&](int rank, Group group) {
    Net net;
    torch::optim::AdamW adamw = adamw_of(net);
    const Fusion first = Fusion::parse("layer");
    DataParallel dp(
        *net, adamw, group,
        {.policy = one.policy, .buckets = one.plan ? planned(first) : given(first), .profile_steps = 2});
    int number = 0;
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      Join join(dp, {.divisor = one.divisor});
      const int mine = batches_of(epoch, rank, one.ranks);
      for (int step = 0; step < mine; ++step) {
        const std::int64_t count = rows_of(one, step, rank);
        set_rate(adamw, 0.02 / (1 + number));
        if (one.samples) dp.samples(count);
        if (count > 0) net->forward(rows(number, 10 * rank, count, kFeatures), rank == 0).backward();
        if (clips(one, step)) dp.reduce_gradients();
        if (clips(one, step)) dp.clip_gradients_by_value(1e-3);
        gives_up(one, step) ? dp.discard_step() : dp.step();
        if (step == 3) dp.regroup(Fusion::parse(epoch == 0 ? "all" : "1KiB"));
        if (step == 4) dp.synchronize();
        ++number;
      }
      join.end();
      number += static_cast<int>(join.shadowed());
      // Steps that were given up were followed, too, and are not counted.
      int longest = 0;
      for (int other = 0; other < one.ranks; ++other)
        longest = std::max(longest, batches_of(epoch, other, one.ranks));
      if (one.changes && mine <= 2 && longest > 2) ++number;
    }
    dp.synchronize();
    expect_near(values_of(net), expected);
  });
}

class Joining : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(Joining, IsTrainingOnWhatThereIs) {
  const auto& [policy, ranks] = GetParam();
  const bool changes = policy != "dear-eager";
  expect_as_in_one_process({.ranks = ranks, .policy = policy, .changes = changes});
  expect_as_in_one_process({.ranks = ranks,
                            .policy = policy,
                            .divisor = Divisor::ranks_with_data,
                            .plan = true,
                            .changes = changes});
  expect_as_in_one_process({.ranks = ranks, .policy = policy, .samples = true, .changes = changes});
}

INSTANTIATE_TEST_SUITE_P(Ranks, Joining,
                         ::testing::Combine(::testing::Values("serial", "wfbp", "dear-replicated", "dear",
                                                              "dear-eager"),
                                            ::testing::Values(1, 2, 4)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           std::erase(name, '-');
                           return name + "On" + std::to_string(std::get<1>(info.param));
                         });

// Rank r has (r + step) % 3 passes in a step, also none; all but its last one are guarded, or all of them.
TEST(PassesTest, MayDifferBetweenRanksAndSteps) {
  constexpr int kRanks = 3;
  const auto passes_of = [](int step, int rank) { return (rank + step) % 3; };
  const auto batch_of = [](int step, int rank, int pass) {
    return rows(step, 10 * rank + pass, 2, kFeatures);
  };
  Net alone;
  torch::optim::AdamW adamw = adamw_of(alone);
  for (int step = 0; step < 5; ++step) {
    adamw.zero_grad();
    for (int rank = 0; rank < kRanks; ++rank)
      for (int pass = 0; pass < passes_of(step, rank); ++pass)
        (alone->forward(batch_of(step, rank, pass), rank == 0) / kRanks).backward();
    adamw.step();
  }
  for (const char* policy : {"serial", "wfbp", "dear-replicated", "dear", "dear-eager"}) {
    for (const bool guard_last : {false, true}) {
      run_all(kRanks, [&](int rank, Group group) {
        Net net;
        torch::optim::AdamW optimizer = adamw_of(net);
        DataParallel dp(*net, optimizer, group, {.policy = policy, .buckets = given(Fusion::parse("layer"))});
        for (int step = 0; step < 5; ++step) {
          const int passes = passes_of(step, rank);
          for (int pass = 0; pass < passes; ++pass) {
            const bool guarded = guard_last || pass + 1 < passes;
            if (guarded) dp.defer();
            net->forward(batch_of(step, rank, pass), rank == 0).backward();
            if (guarded) dp.resume();
          }
          dp.step();
        }
        dp.synchronize();
        expect_near(values_of(net), values_of(alone));
      });
    }
  }
}

TEST(JoinTest, AStepMayHaveMoreCallsThanTheRollCallHasRounds) {
  for (const Divisor divisor : {Divisor::all_ranks, Divisor::ranks_with_data}) {
    std::array<double, 2> values{};
    for (const auto& error : run_each(groups_of(2), [&](int rank, Group group) {
           Weights model(group);
           Join join(model.dp, {.divisor = divisor});
           for (int step = 0; step < (rank == 0 ? 4 : 2); ++step) {
             model.backward(1);
             for (int call = 0; call < 70; ++call) model.dp.clip_gradients_by_value(0.5);
             model.dp.step();
           }
           join.end();
           values.at(rank) = model.value();
         }))
      EXPECT_EQ(what_of(error), "");
    EXPECT_DOUBLE_EQ(values[0], divisor == Divisor::all_ranks ? -2 * 0.5 - 2 * 0.5 : -4 * 0.5);
    EXPECT_EQ(values[1], values[0]);
  }
}

TEST(JoinTest, OfTwoModelsFollowsBoth) {
  auto groups = groups_of(2);
  const std::vector<Group> others = groups_of(2);
  for (const auto& error : run_each(groups, [&](int rank, Group group) {
         Weights a(group), b(others[rank]);
         Join join({&a.dp, &b.dp});
         for (int step = 0; step < (rank == 0 ? 2 : 5); ++step) {
           a.step(1);
           if (step % 2 == 1) b.step(2);
         }
         join.end();
         EXPECT_EQ(join.shadowed(), rank == 0 ? 4 : 0);
         EXPECT_DOUBLE_EQ(a.value(), -2 - 3 * 0.5);
         EXPECT_DOUBLE_EQ(b.value(), -2 - 1);
         a.step(1);
         EXPECT_DOUBLE_EQ(a.value(), -2 - 3 * 0.5 - 1);
       }))
    EXPECT_EQ(what_of(error), "");
}

TEST(JoinTest, AnErrorOnRequestIsThatOfEveryRank) {
  run_all(3, [](int rank, Group group) {
    Weights model(group);
    for (const bool learned : {false, true}) {
      const double before = model.value();
      Join join(model.dp, {.uneven = Uneven::error});
      const int mine = rank == 1 ? 2 : 4;
      const std::string message = message_of<MismatchError>([&] {
        for (int step = learned ? 0 : 2; step < mine; ++step) model.step(1);
        join.end();
      });
      EXPECT_THAT(message, AllOf(HasSubstr("rank " + std::to_string(rank)), HasSubstr("data")));
      EXPECT_DOUBLE_EQ(model.value(), learned ? before - 2 : before);
      model.step(1);  // goes on
      EXPECT_DOUBLE_EQ(model.value(), learned ? before - 3 : before - 1);
    }
  });
}

TEST(JoinTest, ARankThatLeavesByAnExceptionIsNamed) {
  const auto errors = run_each(groups_of(3), [](int rank, Group group) {
    Weights model(group);
    Join join(model.dp);
    for (int step = 0; step < 2 + 5 * rank; ++step) {
      model.step(1);
      if (rank == 1 && step == 4) throw std::runtime_error("no more");
    }
    join.end();
  });
  EXPECT_THAT(what_of(errors[0]), HasSubstr("rank 1"));
  EXPECT_THAT(what_of(errors[1]), HasSubstr("no more"));
  EXPECT_THAT(what_of(errors[2]), HasSubstr("rank 1"));
}

TEST(JoinTest, RanksThatMakeOtherCallsAreToldSo) {
  const auto errors = run_each(groups_of(3), [](int rank, Group group) {
    Weights model(group);
    Join join(model.dp);
    model.step(1);
    if (rank > 0) {
      model.backward(1);
      rank == 1 ? model.dp.step() : model.dp.discard_step();
      model.dp.synchronize();
    }
    join.end();
  });
  for (const auto& error : errors) EXPECT_THAT(what_of(error), HasSubstr("discard_step()"));
}

TEST(JoinTest, RefusesWhatCannotBe) {
  run_all(2, [](int rank, Group group) {
    Weights model(group), other(group);
    EXPECT_THAT(message_of<ConfigError>([&] { model.dp.samples(-1); }), HasSubstr("-1"));
    Join join(model.dp);
    EXPECT_THAT(message_of<ConfigError>([&] { Join(other.dp).end(); }), HasSubstr("open"));
    model.backward(1);
    EXPECT_THAT(message_of<ConfigError>([&] { model.dp.samples(1); }), HasSubstr("before"));
    if (rank == 0) {
      EXPECT_THAT(message_of<ConfigError>([&] { join.end(); }), HasSubstr("step()"));
    }
    model.dp.step();
    EXPECT_THAT(message_of<ConfigError>([&] { model.dp.load_optimizer_state({}); }), HasSubstr("Join"));
    EXPECT_THAT(message_of<ConfigError>([&] { model.dp.rebuild(Model{.parameters = {}, .buffers = {}}); }),
                AllOf(HasSubstr("rebuild()"), HasSubstr("between two joins")));
    join.end();
    EXPECT_THAT(message_of<ConfigError>([&] { Join(std::vector<DataParallel*>{}).end(); }),
                HasSubstr("no model"));
  });
}

// A rank without data has not frozen it, and would go on with a schedule of its own.
TEST(JoinTest, AnotherSetOfTrainedParametersIsRefused) {
  for (const bool learned : {false, true}) {
    const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
      Net net;
      torch::optim::AdamW adamw = adamw_of(net);
      DataParallel dp(*net, adamw, group, {.buckets = given(Fusion::parse("layer"))});
      const auto step = [&] {
        net->forward(rows(0, 10 * rank, 2, kFeatures), true).backward();
        dp.step();
      };
      if (learned) step();
      Join join(dp);
      if (rank == 0) {
        net->spare->weight.requires_grad_(false);
        step();
      }
      join.end();
    });
    EXPECT_THAT(message_of<ConfigError>([&] { std::rethrow_exception(errors[0]); }),
                AllOf(HasSubstr("rank 0"), HasSubstr("between two joins")));
    EXPECT_THAT(what_of(errors[1]), HasSubstr("rank 0"));
  }
}

TEST(SamplesTest, OneRankWithoutThemIsAMismatch) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    Weights model(group);
    for (int step = 0; step < 3; ++step) {
      if (step < 2 || rank == 1) model.dp.samples(3);
      model.step(1);
    }
    model.dp.synchronize();
  });
  for (const auto& error : errors) EXPECT_THAT(what_of(error), HasSubstr("samples"));
}

TEST(SamplesTest, GradientsOfNoSamplesDoNotCountEvenIfNaN) {
  for (const int ranks : {1, 2}) {
    run_all(ranks, [&](int rank, Group group) {
      Weights model(group);
      for (int step = 0; step < 4; ++step) {
        const bool empty = step % 2 == 1 && (rank == 0 || step == 3);
        model.dp.samples(empty ? 0 : 1 + 2 * rank);
        model.step(empty ? std::nan("") : 1);
      }
      EXPECT_DOUBLE_EQ(model.value(), ranks == 1 ? -2 : -3);
    });
  }
}

}  // namespace
}  // namespace dear::join_test
