// Programs whose life is irregular: odd models, parameters without gradients, steps that are given up, errors
// that are caught. What they train is what plain libtorch trains, or one clear error says why not.

#include <functional>
#include <mutex>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::irregular_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using train::testing::Batch;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::slow_groups;
using train::testing::what_of;

constexpr std::int64_t kFeatures = 16;
constexpr int kSteps = 7;

// Parameters of its own before and after its children, as LayerScale and text towers have; one that is not
// used, unless it is told to; one without elements.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    before = register_parameter("before", torch::ones({kFeatures}));
    after = register_parameter("after", torch::ones({12}));
    nothing = register_parameter("nothing", torch::empty({0}));
    first = register_module("first", torch::nn::Linear(kFeatures, 12));
    square = register_module("square", torch::nn::Linear(12, 12));
    spare = register_module("spare", torch::nn::Linear(12, 12));
    last = register_module("last", torch::nn::Linear(12, 3));
  }
  torch::Tensor forward(torch::Tensor x, bool use_spare = false) {
    x = torch::tanh(first(x * before));
    x = torch::tanh(square(x)) * after;
    if (use_spare) x = torch::tanh(spare(x));
    return last(x);
  }
  torch::Tensor before, after, nothing;
  torch::nn::Linear first{nullptr}, square{nullptr}, spare{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

// One program, written once: plain libtorch runs it for the losses of all ranks, and each rank for its own.
struct Training {
  Net& net;
  torch::optim::Optimizer& optimizer;
  DataParallel* dp;  // null in plain libtorch
  std::vector<int> ranks;

  template <typename Loss>
  torch::Tensor mean_of(Loss loss_of_rank) const {
    torch::Tensor total = loss_of_rank(ranks.front());
    for (std::size_t i = 1; i < ranks.size(); ++i) total = total + loss_of_rank(ranks[i]);
    return total / static_cast<double>(ranks.size());
  }
  [[nodiscard]] torch::Tensor loss(int step, bool use_spare = false) const {
    return mean_of([&](int rank) {
      const Batch batch = rows(step, rank * 2, 2, kFeatures);
      return torch::mse_loss(net->forward(batch.inputs, use_spare), batch.targets);
    });
  }
  void step() const {
    if (dp) return dp->step();
    optimizer.step();
    optimizer.zero_grad();
  }
};
using Program = std::function<void(const Training&)>;
using Tensors = std::vector<torch::Tensor>;

Net fresh() {
  torch::manual_seed(11);
  return Net();
}

torch::optim::AdamW adamw_of(Tensors tensors) {
  return torch::optim::AdamW(std::move(tensors), torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
}

Tensors with(Tensors tensors, const torch::Tensor& one) {
  if (one.defined()) tensors.push_back(one);
  return tensors;
}

torch::Tensor copy_of(const torch::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().clone().requires_grad_() : tensor;
}

// `extra`, where it is defined, is trained too, though no module knows it.
using ProgramWith = std::function<void(const Training&, const torch::Tensor& extra)>;

Tensors trained_plainly(const ProgramWith& program, const torch::Tensor& extra) {
  Net net = fresh();
  const torch::Tensor mine = copy_of(extra);
  auto optimizer = adamw_of(with(net->parameters(), mine));
  program({net, optimizer, nullptr, {0, 1}}, mine);
  return with(net->parameters(), mine);
}

void expect_like_plain(const std::string& policy, const ProgramWith& program,
                       const torch::Tensor& extra = {}) {
  const Tensors expected = trained_plainly(program, extra);
  run_all(2, [&](int rank, Group group) {
    Net net = [] {
      static std::mutex seeded;
      const std::lock_guard lock(seeded);
      return fresh();
    }();
    const torch::Tensor mine = copy_of(extra);
    auto optimizer = adamw_of(with(net->parameters(), mine));
    DataParallel dp(*net, optimizer, std::move(group),
                    {.policy = policy, .buckets = given(Fusion::parse("2KiB"))});
    program({net, optimizer, &dp, {rank}}, mine);
    dp.synchronize();
    const Tensors trained = with(net->parameters(), mine);
    for (std::size_t i = 0; i < trained.size(); ++i)
      EXPECT_TRUE(torch::allclose(trained[i], expected[i], 1e-4, 1e-5))
          << policy << ": parameter " << i << " is off by "
          << (trained[i] - expected[i]).abs().max().item<float>();
  });
}

void expect_like_plain(const std::string& policy, const Program& program) {
  expect_like_plain(policy, [&](const Training& run, const torch::Tensor&) { program(run); });
}

class Irregular : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Policies, Irregular, ::testing::Values("serial", "wfbp", "dear-replicated", "dear"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(Irregular, AModuleMayUseItsOwnParametersBeforeAndAfterAChild) {
  expect_like_plain(GetParam(), [](const Training& run) {
    for (int step = 0; step < kSteps; ++step) {
      run.loss(step).backward();
      run.step();
    }
  });
}

TEST_P(Irregular, AnotherMemoryOrderInTheMidstOfTraining) {
  expect_like_plain(GetParam(), [](const Training& run) {
    for (int step = 0; step < kSteps; ++step) {
      run.loss(step).backward();
      run.step();
      torch::Tensor weight = run.net->square->weight;
      if (step == 1) weight.set_data(weight.detach().t().contiguous().t());  // the same values
      if (step == 3) weight.set_data(weight.detach().t());                   // the same memory, other values
    }
  });
}

TEST_P(Irregular, TensorsThatOnlyTheOptimiserHoldsAreTrained) {
  expect_like_plain(
      GetParam(),
      [](const Training& run, const torch::Tensor& temperature) {
        for (int step = 0; step < kSteps; ++step) {
          run.mean_of([&](int rank) {
               const Batch batch = rows(step, rank * 2, 2, kFeatures);
               return torch::mse_loss(run.net->forward(batch.inputs) * temperature, batch.targets);
             })
              .backward();
          run.step();
        }
      },
      torch::full({1}, 1.5));
}

TEST_P(Irregular, ParametersThatNoRankUsedAreLeftAlone) {
  expect_like_plain(GetParam(), [](const Training& run) {
    for (int step = 0; step < kSteps; ++step) {
      run.loss(step, step == 3 || step == 6).backward();
      run.step();
    }
  });
}

TEST_P(Irregular, StepsWithoutABackward) {
  expect_like_plain(GetParam(), [](const Training& run) {
    run.step();
    for (int step = 0; step < kSteps; ++step) {
      run.loss(step, true).backward();
      run.step();
      if (step == 2) run.step();
    }
  });
}

TEST_P(Irregular, AnUnusedParameterHasAHistoryOfItsOwnAfterOtherBuckets) {
  expect_like_plain(GetParam(), [](const Training& run) {
    for (int step = 0; step < kSteps; ++step) {
      run.loss(step, step % 3 == 2).backward();
      run.step();
      if (run.dp && step == 2) run.dp->regroup(Fusion::parse("layer"));
      if (run.dp && step == 4) run.dp->regroup(Fusion::parse("all"));
    }
  });
}

TEST_P(Irregular, APenaltyOnGradients) {
  expect_like_plain(GetParam(), [](const Training& run) {
    for (int step = 0; step < kSteps; ++step) {
      const Batch batch = rows(step, 0, 2, kFeatures);  // ranks alike: a mean of penalties is none of means
      torch::mse_loss(run.net->forward(batch.inputs), batch.targets)
          .backward({}, std::nullopt, /*create_graph=*/true);
      torch::Tensor penalty = torch::zeros({});
      for (const torch::Tensor& parameter : run.net->parameters())
        if (parameter.grad().defined()) penalty = penalty + parameter.grad().pow(2).sum();
      (penalty * 0.1).backward();
      run.step();
    }
  });
}

TEST_P(Irregular, ZeroGradInTheLoop) {
  for (const bool to_none : {true, false}) {
    expect_like_plain(GetParam(), [to_none](const Training& run) {
      for (int step = 0; step < kSteps; ++step) {
        run.optimizer.zero_grad(to_none);
        run.loss(step, true).backward();
        run.step();
        if (step == 4) run.net->zero_grad(to_none);
      }
    });
  }
}

TEST_P(Irregular, AStepGivenUpByZeroGrad) {
  for (const int given_up : {0, 1, 3}) {
    expect_like_plain(GetParam(), [given_up](const Training& run) {
      for (int step = 0; step < kSteps; ++step) {
        run.loss(step).backward();
        if (step == given_up) {
          run.optimizer.zero_grad();
          continue;
        }
        run.step();
      }
    });
  }
}

TEST_P(Irregular, AStepGivenUpByName) {
  for (const int given_up : {0, 1, 3}) {
    expect_like_plain(GetParam(), [given_up](const Training& run) {
      for (int step = 0; step < kSteps; ++step) {
        run.loss(step).backward();
        if (step == given_up) {
          run.dp ? run.dp->discard_step() : run.optimizer.zero_grad();
          continue;
        }
        run.step();
      }
    });
  }
}

// Throws in its backward when it is told to.
struct Trap : torch::autograd::Function<Trap> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x, bool armed) {
    context->saved_data["armed"] = armed;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (context->saved_data["armed"].toBool()) throw std::runtime_error("half-way");
    return {gradients[0], torch::Tensor()};
  }
};

TEST_P(Irregular, ABackwardThatThrewHalfWay) {
  for (const int trapped : {0, 2, 4}) {
    expect_like_plain(GetParam(), [trapped](const Training& run) {
      for (int step = 0; step < kSteps; ++step) {
        const torch::Tensor loss = run.mean_of([&](int rank) {
          const Batch batch = rows(step, rank * 2, 2, kFeatures);
          const torch::Tensor x = torch::tanh(run.net->first(batch.inputs * run.net->before));
          const torch::Tensor y =
              torch::tanh(run.net->square(Trap::apply(x, step == trapped))) * run.net->after;
          return torch::mse_loss(run.net->last(y), batch.targets);
        });
        if (step == trapped) {
          EXPECT_THROW(loss.backward(), std::runtime_error);
          run.optimizer.zero_grad();
          continue;
        }
        loss.backward();
        run.step();
      }
    });
  }
}

TEST_P(Irregular, GradientsOfAnotherModelsPassAreDropped) {
  // As a GAN does it: the pass of the generator leaves gradients in the discriminator, which zero_grad()
  // drops.
  expect_like_plain(GetParam(), [](const Training& run) {
    const torch::Tensor noise = torch::ones({2, kFeatures}).requires_grad_();
    for (int step = 0; step < kSteps; ++step) {
      run.optimizer.zero_grad();
      run.loss(step).backward();
      run.step();
      run.net->forward(noise * (step + 1)).sum().backward();
    }
  });
}

TEST(Irregular, ConstructionAndTrainingMayBeInTwoThreads) {
  std::vector<std::unique_ptr<DataParallel>> dps(2);
  std::vector<Net> nets{fresh(), fresh()};
  std::vector<torch::optim::AdamW> optimizers;
  for (Net& net : nets) optimizers.push_back(adamw_of(net->parameters()));
  run_all(2, [&](int rank, Group group) {
    dps[rank] = std::make_unique<DataParallel>(*nets[rank], optimizers[rank], std::move(group),
                                               DataParallelOptions{.buckets = given(Fusion::parse("layer"))});
  });
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      nets[rank]->forward(torch::ones({2, kFeatures})).sum().backward();
      dps[rank]->step();
      dps[rank]->synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> names;
  for (const Layer& layer : dps[0]->workload().layers) names.push_back(layer.name);
  EXPECT_THAT(names, ElementsAre("spare", "(root)", "first", "square", "(root)", "last"));
  std::thread([&] { dps[0].reset(); }).join();
  dps[1].reset();
}

TEST(Irregular, SavingAParameterByItselfIsCurrent) {
  const auto errors = run_each(slow_groups(2, 20e-3), [](int, Group group) {
    Net net = fresh();
    auto optimizer = adamw_of(net->parameters());
    DataParallel dp(*net, optimizer, std::move(group),
                    {.policy = "dear", .buckets = given(Fusion::parse("layer"))});
    for (int step = 0; step < 3; ++step) {
      net->forward(torch::ones({2, kFeatures})).sum().backward();
      dp.step();
      const std::vector<char> bytes = torch::pickle_save(net->square->weight);
      EXPECT_TRUE(torch::equal(torch::pickle_load(bytes).toTensor(), net->square->weight));
    }
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << what_of(error);
}

// ---- errors

TEST(Irregular, SavingAnOptimiserWhoseStateIsElsewhereIsRefused) {
  Net net = fresh();
  torch::optim::Adagrad optimizer(net->parameters());
  std::ostringstream stream;
  {
    DataParallel dp(*net, optimizer, groups_of(1)[0], {.buckets = given(), .record_trace = true});
    net->forward(torch::ones({2, kFeatures})).sum().backward();
    torch::save(optimizer, stream);  // the state that it was made with
    dp.step();
    EXPECT_THROW(torch::save(optimizer, stream), ConfigError);
    torch::save(net, stream);
  }
  torch::save(optimizer, stream);
  auto other = adamw_of(net->parameters());
  DataParallel dp(*net, other, groups_of(1)[0], {.buckets = given(), .record_trace = true});
  dp.step();
  other.state().clear();  // as loading does
  EXPECT_THAT(message_of<ConfigError>([&] { dp.step(); }), HasSubstr("state was loaded"));
}

TEST(Irregular, ParametersThatLieOtherwiseOnAnotherRankAreNamed) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    Net net = Net();
    torch::Tensor weight = net->square->weight;
    if (rank == 1) weight.set_data(weight.detach().t().contiguous().t());
    auto optimizer = adamw_of(net->parameters());
    DataParallel dp(*net, optimizer, std::move(group), {.buckets = given()});
  });
  for (const auto& error : errors) {
    EXPECT_THROW(std::rethrow_exception(error), MismatchError);
    EXPECT_THAT(what_of(error), AllOf(HasSubstr("'square.weight'"), HasSubstr("strides")));
  }
}

TEST(Irregular, AnotherTypeIsRefused) {
  Net net = fresh();
  auto optimizer = adamw_of(net->parameters());
  DataParallel dp(*net, optimizer, groups_of(1)[0], {.buckets = given(), .record_trace = true});
  net->forward(torch::ones({2, kFeatures})).sum().backward();
  dp.step();
  net->to(torch::kDouble);
  EXPECT_THAT(message_of<ConfigError>([&] { dp.step(); }), AllOf(HasSubstr("'before'"), HasSubstr("Double")));
}

TEST(Irregular, OneRankAloneHasNoSchedule) {
  Net net = fresh();
  auto optimizer = adamw_of(net->parameters());
  DataParallel dp(*net, optimizer, groups_of(1)[0], {.buckets = given()});
  net->forward(torch::ones({2, kFeatures})).sum().backward();
  dp.step();
  EXPECT_EQ(dp.statistics().iterations, 1);
  EXPECT_FALSE(dp.has_state());
  EXPECT_THAT(message_of<ScheduleError>([&] { static_cast<void>(dp.schedule()); }),
              HasSubstr("record_trace"));
}

TEST(Irregular, AModelWhoseConstructionFailedGoesOnWithoutUs) {
  Net net = fresh();
  auto optimizer = adamw_of(net->parameters());
  const torch::Tensor leaf = torch::ones({3}).requires_grad_();
  struct Odd : torch::nn::Module {};
  EXPECT_THAT(message_of<ConfigError>([&] {
                auto tensors = net->parameters();
                tensors.push_back(leaf * 2);
                auto other = torch::optim::SGD(Tensors(net->parameters()), 0.1);
                other.param_groups()[0].params().push_back(leaf * 2);
                DataParallel dp(*net, other, groups_of(1)[0], {.buckets = given()});
              }),
              HasSubstr("no leaf"));
  net->forward(torch::ones({2, kFeatures})).sum().backward();  // meets no hook of the object that is gone
  EXPECT_TRUE(net->before.grad().defined());
}

TEST(Irregular, AFailureInTheFirstStepIsThrownAgainAtOnce) {
  run_all(2, [](int rank, Group group) {
    Net net = Net();
    auto optimizer = adamw_of(net->parameters());
    DataParallel dp(*net, optimizer, group, {.policy = "serial", .buckets = given(Fusion::parse("layer"))});
    net->forward(torch::ones({2, kFeatures})).sum().backward();
    if (rank == 1) {
      group.abort("it was told to");
      EXPECT_THROW(dp.step(), TransportError);
      return;
    }
    const std::string first = message_of<TransportError>([&] { dp.step(); });
    EXPECT_THAT(first, HasSubstr("rank 1"));
    EXPECT_EQ(message_of<TransportError>([&] { net->forward(torch::ones({2, kFeatures})).sum().backward(); }),
              first);
    EXPECT_EQ(message_of<TransportError>([&] { dp.step(); }), first);
    EXPECT_EQ(message_of<TransportError>([&] { dp.synchronize(); }), first);
  });
}

TEST(Irregular, AConstructorRefusedOnOneRankIsRefusedOnAll) {
  const auto errors = run_each(groups_of(3), [](int rank, Group group) {
    Net net = Net();
    if (rank == 1) {
      torch::optim::LBFGS lbfgs(net->parameters());
      EXPECT_THAT(message_of<ConfigError>([&] { DataParallel dp(*net, lbfgs, group, {.buckets = given()}); }),
                  HasSubstr("LBFGS"));
      group.barrier().wait();  // the group goes on
      return;
    }
    auto optimizer = adamw_of(net->parameters());
    EXPECT_THAT(
        message_of<ConfigError>([&] { DataParallel dp(*net, optimizer, group, {.buckets = given()}); }),
        AllOf(HasSubstr("rank 1 refused"), HasSubstr("LBFGS")));
    group.barrier().wait();
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << what_of(error);
}

TEST(Irregular, ARankThatGivesUpInACatchBlockIsNotWaitedFor) {
  for (const int when : {0, 1}) {
    for (const bool inside : {true, false}) {
      const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
        Net net = Net();
        auto optimizer = adamw_of(net->parameters());
        auto dp = std::make_unique<DataParallel>(
            *net, optimizer, group, DataParallelOptions{.buckets = given()});  // and `group` lives on
        for (int step = 0; step < 3; ++step) {
          net->forward(torch::ones({2, kFeatures})).sum().backward();
          if (rank == 1 && step == when) {
            try {
              throw std::runtime_error("out of data");
            } catch (const std::exception&) {
              if (inside) dp.reset();
            }
            dp.reset();
            return;
          }
          dp->step();
        }
      });
      EXPECT_FALSE(errors[1]) << what_of(errors[1]);
      ASSERT_TRUE(errors[0]);
      EXPECT_THAT(what_of(errors[0]), HasSubstr("rank 1"));
    }
  }
}

TEST(Irregular, AJobThatEndsWellWhileAnotherErrorUnwindsEndsNoGroup) {
  struct Job {
    explicit Job(Group with) : group(std::move(with)) {}
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    ~Job() {
      {
        Net net = Net();
        auto optimizer = adamw_of(net->parameters());
        DataParallel dp(*net, optimizer, group, {.buckets = given()});
        net->forward(torch::ones({2, kFeatures})).sum().backward();
        dp.step();
        dp.synchronize();
      }
      EXPECT_NO_THROW(group.barrier().wait());
    }
    Group group;
  };
  const auto errors = run_each(groups_of(2), [](int, Group group) {
    const Job job(std::move(group));
    throw std::runtime_error("something else");
  });
  for (const auto& error : errors) EXPECT_EQ(what_of(error), "something else");
}

TEST(Irregular, AStepThatOneRankGivesUpAndAnotherAppliesIsAnError) {
  const auto errors = run_each(groups_of(2, std::chrono::seconds(5)), [](int rank, Group group) {
    Net net = Net();
    auto optimizer = adamw_of(net->parameters());
    DataParallel dp(*net, optimizer, std::move(group),
                    {.policy = "dear", .buckets = given(Fusion::parse("layer"))});
    for (int step = 0; step < 4; ++step) {
      net->forward(torch::ones({2, kFeatures})).sum().backward();
      rank == 1 && step == 2 ? dp.discard_step() : dp.step();
    }
    dp.synchronize();
  });
  for (const auto& error : errors) EXPECT_TRUE(error);
}

TEST(Irregular, AnotherFusionAfterOneThatWasRefused) {
  run_all(2, [](int, Group group) {
    Net net = Net();
    auto optimizer = adamw_of(net->parameters());
    DataParallel dp(
        *net, optimizer, std::move(group),
        {.buckets =
             given(Fusion(ByName{.buckets = {{"no such tensor"}}, .chunk_bytes = {}, .source = "test"}))});
    for (int step = 0; step < 3; ++step) {
      net->forward(torch::ones({2, kFeatures})).sum().backward();
      if (step == 0) {
        EXPECT_THAT(message_of<ConfigError>([&] { dp.step(); }), HasSubstr("no such tensor"));
        dp.regroup(Fusion::parse("layer"));
      }
      dp.step();
    }
    std::size_t tensors = 0;
    for (const Bucket& bucket : dp.grouping().buckets()) tensors += bucket.tensors.size();
    EXPECT_EQ(tensors, 10U);
    EXPECT_EQ(dp.statistics().iterations, 3);
  });
}

}  // namespace
}  // namespace dear::irregular_test
