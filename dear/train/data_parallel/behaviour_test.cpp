// What real programs do to a model while it trains: each must see whole, current parameters and lose no
// gradient.

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/conductor/testing/order_check.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::behaviour_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using train::testing::Batch;
using train::testing::groups_of;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::slow_groups;
using train::testing::what_of;

constexpr std::int64_t kFeatures = 16;

void require_success(const std::vector<std::exception_ptr>& errors) {
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// Registered in another order than used; `spare` is used in odd passes only, `shared` twice in a pass.
struct OddNetImpl : torch::nn::Module {
  OddNetImpl() {
    last = register_module("last", torch::nn::Linear(20, 3));
    shared = register_module("shared", torch::nn::Linear(20, 20));
    spare = register_module("spare", torch::nn::Linear(20, 20));
    first = register_module("first", torch::nn::Linear(kFeatures, 20));
  }
  torch::Tensor forward(torch::Tensor x, bool use_spare = false) {
    x = shared(torch::tanh(shared(torch::tanh(first(x)))));
    if (use_spare) x = spare(x);
    return last(torch::tanh(x));
  }
  torch::nn::Linear last{nullptr}, shared{nullptr}, spare{nullptr}, first{nullptr};
};
TORCH_MODULE(OddNet);

template <typename Net>
std::vector<Net> fresh(int ranks) {
  std::vector<Net> nets;
  for (int rank = 0; rank < ranks; ++rank) {
    torch::manual_seed(3 + rank);
    nets.push_back(Net());
  }
  return nets;
}

torch::optim::AdamW adamw_of(torch::nn::Module& net) {
  return torch::optim::AdamW(net.parameters(), torch::optim::AdamWOptions(1e-2));
}

const DataParallelOptions kSmallBuckets = {.policy = "dear", .buckets = given(Fusion::parse("layer"))};

TEST(Behaviour, LayersStandInTheOrderOfUse) {
  auto nets = fresh<OddNet>(2);
  run_all(2, [&](int rank, Group group) {
    auto optimizer = adamw_of(*nets[rank]);
    DataParallel dp(*nets[rank], optimizer, group, kSmallBuckets);
    EXPECT_THROW((void)dp.schedule(), ScheduleError);
    nets[rank]->forward(torch::ones({2, kFeatures})).sum().backward();
    dp.step();
    std::vector<std::string> names;
    for (const Layer& layer : dp.workload().layers) names.push_back(layer.name);
    EXPECT_THAT(names, ElementsAre("spare", "first", "shared", "last"));  // unused ones first
  });
}

// Trains 6 steps; `use_spare(rank, step)` and `around` shape the program.
struct Program {
  std::function<bool(int rank, int step)> use_spare = [](int, int) { return false; };
  using Act = std::function<void(int rank, int step, OddNet&, torch::optim::AdamW&, DataParallel&)>;
  Act after_backward = nullptr;
  Act after_step = nullptr;
  int passes = 1;
};

std::string digest_of(const std::string& policy, const Program& program, bool slow = true) {
  auto nets = fresh<OddNet>(2);
  std::vector<std::string> digests(2);
  require_success(run_each(slow ? slow_groups(2) : groups_of(2), [&](int rank, Group group) {
    OddNet& net = nets[rank];
    auto optimizer = adamw_of(*net);
    DataParallel dp(*net, optimizer, group, {.policy = policy, .buckets = given(Fusion::parse("layer"))});
    for (int step = 0; step < 6; ++step) {
      for (int pass = 0; pass < program.passes; ++pass) {
        const Batch batch = rows(step * 10 + pass, rank * 2, 2, kFeatures);
        auto loss = torch::mse_loss(net->forward(batch.inputs, program.use_spare(rank, step)), batch.targets);
        loss.backward();
      }
      if (program.after_backward) program.after_backward(rank, step, net, optimizer, dp);
      dp.step();
      if (program.after_step) program.after_step(rank, step, net, optimizer, dp);
    }
    digests[rank] = parameter_digest(*net);  // no synchronize(): operators wait by themselves
  }));
  EXPECT_EQ(digests[0], digests[1]);
  return digests[0];
}

class OverlappingPolicy : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, OverlappingPolicy, ::testing::Values("wfbp", "dear-replicated", "dear"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(OverlappingPolicy, SlowNetworkAndOddOrderChangeNothing) {
  EXPECT_EQ(digest_of(GetParam(), {}), digest_of("serial", {}, false));
}

TEST_P(OverlappingPolicy, ParametersMayBeUsedInSomeStepsOnly) {
  const Program sometimes{.use_spare = [](int, int step) { return step % 2 == 1; }};
  EXPECT_EQ(digest_of(GetParam(), sometimes), digest_of("serial", sometimes, false));
}

TEST_P(OverlappingPolicy, RanksMayUseDifferentParameters) {
  const Program differing{.use_spare = [](int rank, int step) { return (rank + step) % 2 == 1; }};
  EXPECT_EQ(digest_of(GetParam(), differing), digest_of("serial", differing, false));
}

TEST_P(OverlappingPolicy, AccumulationIsLearned) {
  const Program twice{.passes = 3};
  EXPECT_EQ(digest_of(GetParam(), twice), digest_of("serial", twice, false));
}

TEST_P(OverlappingPolicy, TheLearningRateAtStepCounts) {
  const Program decaying{
      .after_step = [](int, int step, OddNet&, torch::optim::AdamW& optimizer, DataParallel&) {
        static_cast<torch::optim::AdamWOptions&>(optimizer.param_groups()[0].options()).lr(1e-2 / (step + 2));
      }};
  EXPECT_EQ(digest_of(GetParam(), decaying), digest_of("serial", decaying, false));
}

TEST_P(OverlappingPolicy, DroppedAndReplacedViewsAreTakenOver) {
  const Program dropping{.after_step = [](int, int step, OddNet& net, torch::optim::AdamW&, DataParallel&) {
    if (step % 2 == 0) {
      for (auto& parameter : net->parameters()) parameter.mutable_grad().reset();
    } else {
      net->zero_grad();
    }
  }};
  EXPECT_EQ(digest_of(GetParam(), dropping), digest_of("serial", {}, false));
}

TEST_P(OverlappingPolicy, EvaluationAndReadsBetweenStepsAreCurrent) {
  // Each rank writes down what it sees right after step(); serial training has nothing in flight then.
  const auto seen_by = [](const std::string& policy, bool slow) {
    std::vector<double> seen(6);
    Program reading;
    reading.after_step = [&seen](int rank, int step, OddNet& net, torch::optim::AdamW&, DataParallel&) {
      if (rank != 0) return;
      const torch::NoGradGuard no_grad;
      net->eval();
      seen[step] = net->forward(torch::ones({1, kFeatures}), step % 2 == 1).sum().item<double>() +
                   net->last->bias[0].item<double>();
      net->train();
    };
    digest_of(policy, reading, slow);
    return seen;
  };
  EXPECT_EQ(seen_by(GetParam(), true), seen_by("serial", false));
}

TEST_P(OverlappingPolicy, SavingRightAfterStepIsCurrent) {
  const auto saved_by = [](const std::string& policy, bool slow) {
    std::vector<std::string> saved(6);
    Program saving;
    saving.after_step = [&saved](int rank, int step, OddNet& net, torch::optim::AdamW&, DataParallel&) {
      if (rank != 0) return;
      std::ostringstream stream;
      torch::save(net, stream);
      OddNet copy;
      std::istringstream back(stream.str());
      torch::load(copy, back);
      saved[step] = parameter_digest(*copy);
    };
    digest_of(policy, saving, slow);
    return saved;
  };
  EXPECT_EQ(saved_by(GetParam(), true), saved_by("serial", false));
}

TEST_P(OverlappingPolicy, LoadingInTheMiddleIsTakenOver) {
  torch::manual_seed(77);
  OddNet other;
  std::ostringstream stream;
  torch::save(other, stream);
  const std::string bytes = stream.str();
  const Program loading{
      .after_step = [bytes](int, int step, OddNet& net, torch::optim::AdamW&, DataParallel&) {
        if (step != 2) return;
        std::istringstream back(bytes);
        torch::load(net, back);
      }};
  const std::string expected = digest_of("serial", loading, false);
  EXPECT_NE(expected, digest_of("serial", {}, false));
  EXPECT_EQ(digest_of(GetParam(), loading), expected);
}

TEST_P(OverlappingPolicy, GradientReadsWaitForTheirReduction) {
  // Between backward() and step() a gradient that is on the wire may be read; it must not disturb it.
  const Program reading{.after_backward = [](int, int, OddNet& net, torch::optim::AdamW&, DataParallel&) {
    for (const auto& parameter : net->parameters()) {
      if (!parameter.grad().defined()) continue;
      EXPECT_TRUE(torch::isfinite(parameter.grad()).all().item<bool>());
    }
  }};
  EXPECT_EQ(digest_of(GetParam(), reading), digest_of("serial", {}, false));
}

TEST(Behaviour, NoSyncDefersAllButTheLast) {
  const auto train_with = [](bool deferring) {
    auto nets = fresh<OddNet>(2);
    std::vector<std::string> digests(2);
    require_success(run_each(slow_groups(2), [&](int rank, Group group) {
      auto optimizer = adamw_of(*nets[rank]);
      DataParallel dp(*nets[rank], optimizer, group, kSmallBuckets);
      for (int step = 0; step < 5; ++step) {
        torch::Tensor total = torch::zeros({});
        for (int pass = 0; pass <= step; ++pass) {  // an irregular number of passes
          const Batch batch = rows(step * 10 + pass, rank * 2, 2, kFeatures);
          auto loss = torch::mse_loss(nets[rank]->forward(batch.inputs), batch.targets);
          if (!deferring) {
            total = total + loss;
          } else if (pass < step) {
            const auto guard = dp.no_sync();
            loss.backward();
          } else {
            loss.backward();
          }
        }
        if (!deferring) total.backward();
        dp.step();
      }
      dp.synchronize();
      for (const auto& parameter : nets[rank]->parameters())
        EXPECT_EQ(parameter.grad().abs().sum().item<float>(), 0);
      digests[rank] = parameter_digest(*nets[rank]);
    }));
    EXPECT_EQ(digests[0], digests[1]);
    std::vector<torch::Tensor> parameters = nets[0]->parameters();
    return parameters;
  };
  const auto deferred = train_with(true);
  const auto summed = train_with(false);
  for (std::size_t i = 0; i < deferred.size(); ++i)
    EXPECT_TRUE(torch::allclose(deferred[i], summed[i], 1e-3, 1e-4)) << i;
}

TEST(Behaviour, MorePassesThanLearnedIsAnErrorThatSaysWhatToDo) {
  auto nets = fresh<OddNet>(2);
  const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
    auto optimizer = adamw_of(*nets[rank]);
    DataParallel dp(*nets[rank], optimizer, group, kSmallBuckets);
    for (int step = 0; step < 2; ++step) {
      for (int pass = 0; pass <= step; ++pass)
        nets[rank]->forward(torch::ones({2, kFeatures})).sum().backward();
      dp.step();
    }
  });
  // The first rank to meet it says so; one that was behind may hear of that before it meets it itself.
  int said = 0;
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(what_of(error), HasSubstr("rank "));
    try {
      std::rethrow_exception(error);
    } catch (const ConfigError& config) {
      EXPECT_THAT(config.what(), AllOf(HasSubstr("gradient of '"), HasSubstr("no_sync()")));
      ++said;
    } catch (const TransportError&) {
    }
  }
  EXPECT_GE(said, 1);
}

// Recomputes a layer in the backward pass, as activation checkpointing does: its gradients arrive from a
// nested pass.
struct Recompute : torch::autograd::Function<Recompute> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x,
                               torch::nn::Linear* layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer);
    const torch::NoGradGuard no_grad;
    return torch::tanh((*layer)(x));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* layer = reinterpret_cast<torch::nn::Linear*>(context->saved_data["layer"].toInt());
    const at::AutoGradMode with_gradients(true);
    auto x = context->get_saved_variables()[0].detach().requires_grad_();
    torch::tanh((*layer)(x)).backward(gradients[0]);
    return {x.grad(), torch::Tensor()};
  }
};

TEST(Behaviour, CheckpointedLayersUsedTwiceArriveTwice) {
  const auto train_with = [](const std::string& policy, bool recompute) {
    auto nets = fresh<OddNet>(2);
    std::vector<std::string> digests(2);
    require_success(run_each(slow_groups(2), [&](int rank, Group group) {
      OddNet& net = nets[rank];
      auto optimizer = adamw_of(*net);
      DataParallel dp(*net, optimizer, group, {.policy = policy, .buckets = given(Fusion::parse("layer"))});
      for (int step = 0; step < 4; ++step) {
        const Batch batch = rows(step, rank * 2, 2, kFeatures);
        auto x = torch::tanh(net->first(batch.inputs));
        for (int use = 0; use < 2; ++use) {
          x = recompute ? Recompute::apply(x, &net->shared) : torch::tanh(net->shared(x));
        }
        torch::mse_loss(net->last(x), batch.targets).backward();
        dp.step();
      }
      digests[rank] = parameter_digest(*net);
    }));
    EXPECT_EQ(digests[0], digests[1]);
    return digests[0];
  };
  EXPECT_EQ(train_with("dear", true), train_with("serial", true));
  EXPECT_EQ(train_with("wfbp", true), train_with("serial", true));
}

struct TiedNetImpl : torch::nn::Module {
  TiedNetImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(11, 8));
    middle = register_module("middle", torch::nn::Linear(8, 8));
    head = register_parameter("head", embedding->weight);  // the same tensor under two names
    frozen = register_parameter("frozen", torch::randn({8}), false);
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    return torch::matmul(norm(torch::tanh(middle(embedding(tokens))) + frozen), head.t());
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear middle{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor head, frozen;
};
TORCH_MODULE(TiedNet);

TEST(Behaviour, TiedFrozenAndNormalised) {
  const auto train_with = [](const std::string& policy) {
    auto nets = fresh<TiedNet>(3);
    const auto frozen = nets[0]->frozen.clone();
    std::vector<std::string> digests(3);
    require_success(run_each(slow_groups(3), [&](int rank, Group group) {
      TiedNet& net = nets[rank];
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      DataParallel dp(*net, sgd, group, {.policy = policy, .buckets = given(Fusion::parse("layer"))});
      EXPECT_TRUE(torch::equal(net->frozen, frozen));  // rank 0's
      for (int step = 0; step < 4; ++step) {
        const auto tokens = (torch::arange(6) * (step + 1) + rank) % 11;
        torch::nn::functional::cross_entropy(net->forward(tokens), (tokens + 1) % 11).backward();
        dp.step();
      }
      EXPECT_EQ(dp.workload().tensors.size(), 5U);  // the tied one once, the frozen one not
      dp.synchronize();
      digests[rank] = parameter_digest(*net);
    }));
    for (int rank = 1; rank < 3; ++rank) {
      EXPECT_EQ(digests[rank], digests[0]);
      EXPECT_TRUE(torch::equal(nets[rank]->norm->running_mean, nets[0]->norm->running_mean));
      EXPECT_TRUE(torch::equal(nets[rank]->norm->running_var, nets[0]->norm->running_var));
    }
    EXPECT_TRUE(torch::equal(nets[2]->frozen, frozen));
    EXPECT_EQ(nets[1]->norm->num_batches_tracked.item<int>(), 4);
    return digests[0];
  };
  const std::string expected = train_with("serial");
  EXPECT_EQ(train_with("wfbp"), expected);
  EXPECT_EQ(train_with("dear-replicated"), expected);
  EXPECT_EQ(train_with("dear"), expected);
}

TEST(Behaviour, EveryFloatingTypeTravels) {
  for (const auto type : {torch::kFloat64, torch::kBFloat16}) {
    auto nets = fresh<OddNet>(2);
    std::vector<std::string> digests(2);
    std::string before;
    run_all(2, [&](int rank, Group group) {
      OddNet& net = nets[rank];
      net->shared->to(type);
      net->spare->to(type);
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      DataParallel dp(*net, sgd, group, {.buckets = given(Fusion::parse("all"))});
      if (rank == 0) before = parameter_digest(*net);
      for (int step = 0; step < 3; ++step) {
        const Batch batch = rows(step, rank * 2, 2, kFeatures);
        auto x = net->shared(torch::tanh(net->first(batch.inputs)).to(type)).to(torch::kFloat32);
        torch::mse_loss(net->last(x), batch.targets).backward();
        dp.step();
      }
      EXPECT_EQ(dp.grouping().size(), 2U);  // one bucket a type
      digests[rank] = parameter_digest(*net);
    });
    EXPECT_EQ(digests[0], digests[1]);
    EXPECT_NE(digests[0], before);
  }
}

TEST(Behaviour, ParametersAndGradientsAreViewsNotCopies) {
  auto nets = fresh<OddNet>(2);
  run_all(2, [&](int rank, Group group) {
    auto optimizer = adamw_of(*nets[rank]);
    DataParallel dp(*nets[rank], optimizer, group, {.buckets = given(Fusion::parse("all"))});
    nets[rank]->forward(torch::ones({2, kFeatures}), true).sum().backward();
    dp.step();
    dp.synchronize();
    const auto parameters = nets[rank]->parameters();
    std::int64_t bytes = 0;
    for (const auto& parameter : parameters) {
      EXPECT_EQ(parameter.storage().unsafeGetStorageImpl(), parameters[0].storage().unsafeGetStorageImpl());
      EXPECT_EQ(parameter.grad().storage().unsafeGetStorageImpl(),
                parameters[0].grad().storage().unsafeGetStorageImpl());
      bytes += (static_cast<std::int64_t>(parameter.nbytes()) + 63) / 64 * 64;
    }
    bytes = (bytes + 127) / 128 * 128;  // so that the shards of two ranks are equal
    EXPECT_EQ(dp.statistics().parameter_bytes, bytes);
    std::int64_t used = 0;
    for (const auto& parameter : parameters) used += parameter.count_nonzero().item<std::int64_t>();
    torch::Tensor bucket = torch::empty({0});
    bucket.set_(parameters[0].storage(), 0, {bytes / 4}, {1});
    EXPECT_EQ(bucket.count_nonzero().item<std::int64_t>(), used);  // padding is zero
    EXPECT_EQ(dp.statistics().buckets, 1U);
  });
}

TEST(Behaviour, ATraceShowsLayersAndRespectsTheSchedule) {
  auto nets = fresh<OddNet>(2);
  require_success(run_each(slow_groups(2), [&](int rank, Group group) {
    auto optimizer = adamw_of(*nets[rank]);
    DataParallel dp(*nets[rank], optimizer, group,
                    {.policy = "dear", .buckets = given(Fusion::parse("layer")), .record_trace = true});
    for (int step = 0; step < 5; ++step) {
      nets[rank]->forward(torch::ones({2, kFeatures}), true).sum().backward();
      dp.step();
    }
    const Trace trace = dp.trace();
    EXPECT_THAT(trace.network, HasSubstr("modelled"));
    std::map<Activity, int> count;
    for (const Span& span : trace.spans) {
      EXPECT_LE(span.begin_seconds, span.end_seconds);
      EXPECT_EQ(span.rank, rank);
      ++count[span.activity];
    }
    // Iteration 0 is learned from: no layer is known in it.
    EXPECT_EQ(count[Activity::backward], 4 * 4);
    EXPECT_GE(count[Activity::forward], 4 * 4);
    EXPECT_EQ(count[Activity::communication], 5 * 4 * 2);
    EXPECT_EQ(count[Activity::update], 5 * 4);
    EXPECT_GE(count[Activity::wait], 4);
    EXPECT_THAT(conductor::order_violations(dp.schedule(), trace,
                                            {.tolerance_seconds = 0, .free = {.compute = true}}),
                ::testing::IsEmpty());
    const Workload profile = dp.profile();
    for (const Layer& layer : profile.layers) {
      EXPECT_GT(layer.forward_seconds, 0) << layer.name;
      EXPECT_GT(layer.backward_seconds, 0) << layer.name;
    }
    EXPECT_GT(profile.update_seconds, 0);
  }));
}

}  // namespace
}  // namespace dear::behaviour_test
