// K-FAC refuses what it cannot do, and goes on without samples that are none.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/kfac/modelled.h"
#include "dear/systems/kfac/inverse.h"
#include "dear/systems/kfac/kfac.h"
#include "dear/systems/kfac/testing/trained.h"
#include "dear/train/data_parallel/join.h"

namespace dear::refusals_test {
namespace {

using systems::kfac::inverse_of;
using systems::kfac::testing::fill;
using systems::kfac::testing::loss_of;
using systems::kfac::testing::Net;
using systems::kfac::testing::take_step;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

// A training on one rank.
struct Alone {
  explicit Alone(const KfacOptions& options = {}, const std::function<void(Net&)>& change = {},
                 Group group = groups_of(1)[0])
      : sgd((change ? change(net) : void(), net->parameters()), torch::optim::SGDOptions(0.05)),
        dp(*net, sgd, std::move(group), {.buckets = given(Fusion())}),
        kfac(*net, dp, options) {}
  void step(int number) {
    loss_of(net, number, 0, 8).backward();
    kfac.step();
    dp.step();
  }
  Net net;
  torch::optim::SGD sgd;
  DataParallel dp;
  Kfac kfac;
};

std::string refusal_of(const KfacOptions& options) {
  return message_of<ConfigError>([&] { Alone alone(options); });
}

TEST(KfacOptions, OutOfRangeAreRefused) {
  const double nan = std::nan("");
  for (const double damping : {0.0, -1.0, 1e31, std::numeric_limits<double>::infinity(), nan})
    EXPECT_THAT(refusal_of({.damping = damping}), HasSubstr("damping"));
  for (const double ema : {0.0, 1.0, -0.1, 1.5, nan})
    EXPECT_THAT(refusal_of({.ema = ema}), HasSubstr("running average"));
  for (const double clip : {0.0, -1e-3, nan})
    EXPECT_THAT(refusal_of({.kl_clip = clip}), AllOf(HasSubstr("clip"), HasSubstr("or none")));
  EXPECT_THAT(refusal_of({.factor_every = 0}), HasSubstr("factors every 0"));
  EXPECT_THAT(refusal_of({.inverse_every = 0}), HasSubstr("inverses every 0"));
  EXPECT_THAT(refusal_of({.factor_every = 2, .inverse_every = 3}), HasSubstr("multiple"));
  EXPECT_THAT(refusal_of({.replan_after = -1}), HasSubstr("-1"));
  EXPECT_THAT(refusal_of({.strategy = "best"}), AllOf(HasSubstr("'best'"), HasSubstr("spd-kfac")));
  EXPECT_THAT(refusal_of({.fusion = "best"}), AllOf(HasSubstr("'best'"), HasSubstr("exact")));
}

TEST(KfacLayers, ThatThereAreNotCannotBeExcluded) {
  EXPECT_THAT(refusal_of({.exclude = {"lost"}}), AllOf(HasSubstr("'lost'"), HasSubstr("twice")));
}

TEST(KfacLayers, WithHugeFactorsAreToBeExcluded) {
  EXPECT_EQ(KfacOptions{}.largest_factor, methods::kfac::kLargestFactor);  // as plans have it
  EXPECT_THAT(refusal_of({.largest_factor = 10}), AllOf(HasSubstr("11"), HasSubstr("exclude")));
}

TEST(KfacLayers, AreNeeded) {
  EXPECT_THAT(refusal_of({.exclude = {"spread", "narrow", "twice", "plain", "spare", "last"}}),
              HasSubstr("no layer"));
  run_all(1, [](int, Group group) {
    const torch::Tensor weight = torch::ones({2, 3}, torch::requires_grad());
    torch::optim::SGD sgd({weight}, 0.1);
    DataParallel dp(Model{.parameters = {{"weight", weight}}, .buffers = {}}, make_optimizer(sgd), group,
                    {.buckets = given(Fusion())});
    EXPECT_THAT(message_of<ConfigError>([&] { Kfac(std::vector<KfacLayer>{}, dp); }), HasSubstr("no layer"));
    EXPECT_THAT(message_of<ConfigError>([&] { Kfac(std::vector<KfacLayer>{{.weight = weight}}, dp); }),
                HasSubstr("name"));
    EXPECT_THAT(
        message_of<ConfigError>([&] {
          Kfac(std::vector<KfacLayer>{{.name = "a", .weight = weight}, {.name = "a", .weight = weight}}, dp);
        }),
        HasSubstr("'a'"));
  });
}

// Grouped, frozen and excluded ones, and a weight of three dimensions.
TEST(KfacLayers, ThatAreLeftOutKeepTheirGradients) {
  run_all(1, [](int, Group group) {
    torch::nn::Conv2d grouped(torch::nn::Conv2dOptions(4, 4, 1).groups(2));
    torch::nn::Linear frozen(4, 4), excluded(4, 4), taken(4, 4);
    frozen->weight.set_requires_grad(false);
    std::vector<torch::Tensor> parameters;
    for (const torch::Tensor& tensor :
         {grouped->weight, grouped->bias, frozen->bias, excluded->weight, taken->weight, taken->bias})
      parameters.push_back(tensor);
    torch::optim::SGD sgd(parameters, 0.1);
    Model model;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      model.parameters.emplace_back("p" + std::to_string(i), parameters[i]);
    DataParallel dp(model, make_optimizer(sgd), group, {.buckets = given(Fusion())});
    const torch::Tensor odd = torch::ones({2, 2, 2}, torch::requires_grad());
    Kfac kfac({{.name = "grouped", .weight = grouped->weight, .bias = grouped->bias, .groups = 2},
               {.name = "frozen", .weight = frozen->weight, .bias = frozen->bias},
               {.name = "block.excluded", .weight = excluded->weight},
               {.name = "odd", .weight = odd},
               {.name = "taken", .weight = taken->weight, .bias = taken->bias}},
              dp, {.exclude = {"block"}});
    const KfacReport report = kfac.report();
    EXPECT_THAT(report.layers, ElementsAre("taken"));
    EXPECT_THAT(report.left_out.at("grouped"), HasSubstr("2 groups"));
    EXPECT_THAT(report.left_out.at("frozen"), HasSubstr("frozen"));
    EXPECT_THAT(report.left_out.at("block.excluded"), HasSubstr("excluded"));
    EXPECT_THAT(report.left_out.at("odd"), HasSubstr("3 dimensions"));
    torch::Tensor x = torch::sin(torch::arange(12.0)).view({3, 4});
    x = grouped(x.view({3, 4, 1, 1})).flatten(1);
    taken(torch::linear(frozen(x), excluded->weight)).pow(2).mean().backward();
    std::vector<torch::Tensor> before;
    for (const torch::Tensor& tensor : parameters) before.push_back(tensor.grad().clone());
    kfac.step();
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(torch::equal(parameters[i].grad(), before[i])) << i;
    EXPECT_FALSE(torch::allclose(parameters[4].grad(), before[4]));
    dp.step();
  });
}

TEST(KfacTraining, IsRefusedWhereGradientsCannotBeChanged) {
  for (const int ranks : {1, 2}) {
    run_all(ranks, [](int rank, Group group) {
      Net net;
      torch::optim::SGD sgd(net->parameters(), 0.1);
      DataParallel dp(*net, sgd, group, {.policy = "dear-eager", .buckets = given(Fusion())});
      EXPECT_THAT(message_of<ConfigError>([&] { Kfac(*net, dp); }),
                  AllOf(HasSubstr("dear-eager"), HasSubstr("rank " + std::to_string(rank))));
    });
  }
  run_all(2, [](int, Group group) {
    Net net;
    net->to(torch::kFloat);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    DataParallel dp(*net, sgd, group,
                    {.buckets = given(Fusion()), .compression = Compression::parse("bf16")});
    EXPECT_THAT(message_of<ConfigError>([&] { Kfac(*net, dp); }), HasSubstr("compress"));
  });
}

TEST(KfacTraining, IsRefusedInAJoin) {
  run_all(2, [](int, Group group) {
    Alone one({}, {}, group);
    one.step(0);
    Join join(one.dp);
    loss_of(one.net, 1, 0, 8).backward();
    EXPECT_THAT(message_of<ConfigError>([&] { one.kfac.step(); }), HasSubstr("Join"));
    one.dp.step();
    join.end();
    one.step(2);
  });
}

TEST(KfacTraining, IsMadeBetweenSteps) {
  run_all(2, [](int, Group group) {
    Alone one({}, {}, group);
    loss_of(one.net, 0, 0, 8).backward();
    EXPECT_THAT(message_of<ConfigError>([&] { Kfac(*one.net, one.dp); }), HasSubstr("between"));
    EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(one.kfac.state()); }), HasSubstr("between"));
    one.kfac.step();
    one.dp.step();
  });
}

TEST(KfacTraining, AScaleThatIsNoneIsRefused) {
  Alone one;
  loss_of(one.net, 0, 0, 8).backward();
  for (const double scale : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_THAT(message_of<ConfigError>([&] { one.kfac.step({.loss_scale = scale}); }), HasSubstr("scaled"));
  one.kfac.step();
  one.dp.step();
}

TEST(KfacTraining, ALearningRateThatIsNoneIsRefused) {
  Alone one;
  loss_of(one.net, 0, 0, 8).backward();
  for (const double rate : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_THAT(message_of<ConfigError>([&] { one.kfac.step({.learning_rate = rate}); }),
                HasSubstr("learning rate"));
  one.kfac.step({.learning_rate = 0});
  one.dp.step();
  Alone unclipped({.kl_clip = {}});
  loss_of(unclipped.net, 0, 0, 8).backward();
  EXPECT_THAT(message_of<ConfigError>([&] { unclipped.kfac.step({.learning_rate = -1}); }),
              HasSubstr("learning rate"));
}

TEST(KfacTraining, StepsOnceForEachStepOfTheDataParallel) {
  for (const int ranks : {1, 2}) {
    run_all(ranks, [](int, Group group) {
      Alone one({}, {}, group);
      for (int step = 0; step < 3; ++step) {
        EXPECT_THAT(message_of<ConfigError>([&] { one.kfac.step(); }), HasSubstr("no gradient"));
        loss_of(one.net, step, 0, 8).backward();
        one.kfac.step();
        EXPECT_THAT(message_of<ConfigError>([&] { one.kfac.step(); }), HasSubstr("twice"));
        step == 1 ? one.dp.discard_step() : one.dp.step();
      }
      EXPECT_EQ(one.kfac.report().steps, 3);
    });
  }
}

TEST(KfacTraining, GradientsThatWereDroppedMayBePreconditionedAgain) {
  for (const int ranks : {1, 2}) {
    run_all(ranks, [](int, Group group) {
      Alone one({}, {}, group);
      one.step(0);
      loss_of(one.net, 1, 0, 8).backward();
      one.kfac.step();
      one.net->zero_grad();
      one.step(2);
    });
  }
}

TEST(KfacTraining, HasOneKfacAtATime) {
  run_all(2, [](int, Group group) {
    Net net;
    torch::optim::SGD sgd(net->parameters(), 0.05);
    DataParallel dp(*net, sgd, std::move(group), {.buckets = given(Fusion())});
    {
      const Kfac first(*net, dp);
      EXPECT_THAT(message_of<ConfigError>([&] { Kfac(*net, dp); }), HasSubstr("one K-FAC"));
    }
    EXPECT_THAT(message_of<ConfigError>([&] { Kfac(*net, dp, {.damping = 0}); }), HasSubstr("damping"));
    const Kfac second(*net, dp);
  });
}

// The other rank goes on without: it makes a collective that the first does not expect.
TEST(KfacTraining, CallsOfSomeRanksOnlyAreToldSo) {
  const auto told_by_one = [](const std::function<void(Alone&, int rank, int step)>& take_step) {
    const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
      Alone one({}, {}, std::move(group));
      for (int step = 0; step < 6; ++step) take_step(one, rank, step);
    });
    return what_of(errors[0]) + what_of(errors[1]);
  };
  for (const int last : {0, 3})
    EXPECT_THAT(told_by_one([&](Alone& one, int rank, int step) {
                  loss_of(one.net, step, 0, 8).backward();
                  if (rank == 0 || step < last) one.kfac.step();
                  one.dp.step();
                }),
                AllOf(HasSubstr("all-gather"), HasSubstr("every rank")))
        << last;
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    Net net;
    torch::optim::SGD sgd(net->parameters(), 0.05);
    DataParallel dp(*net, sgd, std::move(group), {.buckets = given(Fusion())});
    if (rank == 0) Kfac(*net, dp);
    if (rank == 1) dp.discard_step();
  });
  for (const auto& error : errors)
    EXPECT_THAT(message_of<MismatchError>([&] { std::rethrow_exception(error); }),
                AllOf(HasSubstr("K-FAC"), HasSubstr("discard_step")));
}

TEST(KfacTraining, AStepThatDiffersBetweenRanksIsAMismatch) {
  const auto steps = [](const std::function<KfacStep(int rank)>& step) {
    return run_each(groups_of(2), [&](int rank, Group group) {
      Alone one({.kl_clip = 1e-3}, {}, std::move(group));
      for (int i = 0; i < 2; ++i) {
        loss_of(one.net, i, 0, 8).backward();
        one.kfac.step(i == 0 ? KfacStep{} : step(rank));
        one.dp.step();
      }
    });
  };
  const auto of_rate = [](int rank) { return KfacStep{.learning_rate = 0.1 * (1 + rank)}; };
  const auto of_scale = [](int rank) { return KfacStep{.loss_scale = 1.0 + rank}; };
  for (const auto& error : steps(of_rate))
    EXPECT_THAT(message_of<MismatchError>([&] { std::rethrow_exception(error); }),
                HasSubstr("learning rate 0.2"));
  for (const auto& error : steps(of_scale))
    EXPECT_THAT(message_of<MismatchError>([&] { std::rethrow_exception(error); }), HasSubstr("loss scale 2"));
}

TEST(KfacTraining, RanksThatDifferAreToldSo) {
  const auto differing = [](const std::function<KfacOptions(int rank)>& options) {
    return run_each(groups_of(2), [&](int rank, Group group) { Alone(options(rank), {}, group); });
  };
  for (const auto& error : differing([](int rank) { return KfacOptions{.damping = 1e-3 * (1 + rank)}; }))
    EXPECT_THAT(message_of<MismatchError>([&] { std::rethrow_exception(error); }), HasSubstr("K-FAC"));
  // All ranks refuse what one refuses.
  for (const auto& error : differing([](int rank) { return KfacOptions{.damping = rank - 1.0}; }))
    EXPECT_THAT(message_of<ConfigError>([&] { std::rethrow_exception(error); }), HasSubstr("damping"));
  // Layers in another order.
  for (const auto& error : run_each(groups_of(2), [](int rank, Group group) {
         Net net;
         torch::optim::SGD sgd(net->parameters(), 0.1);
         DataParallel dp(*net, sgd, std::move(group), {.buckets = given(Fusion())});
         std::vector<KfacLayer> layers = kfac_layers_of(*net);
         if (rank == 1) std::swap(layers[0], layers[1]);
         Kfac kfac(layers, dp);
       }))
    EXPECT_THAT(message_of<MismatchError>([&] { std::rethrow_exception(error); }), HasSubstr("K-FAC"));
}

TEST(KfacTraining, ALostRankIsAnErrorOnTheOthers) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    Alone one({}, {}, group);
    for (int step = 0; step < 6; ++step) {
      if (rank == 1 && step == 3) throw std::runtime_error("out of data");
      one.step(step);
    }
  });
  EXPECT_EQ(what_of(errors[1]), "out of data");
  EXPECT_THAT(message_of<TransportError>([&] { std::rethrow_exception(errors[0]); }), HasSubstr("rank 1"));
}

// Libtorch swallows what is thrown where an operator is seen.
TEST(KfacTraining, AnErrorInAnOperatorIsThrownByStepAndToldToAll) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    Net net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    DataParallel dp(*net, sgd, std::move(group), {.buckets = given(Fusion())});
    std::vector<KfacLayer> layers = kfac_layers_of(*net);
    layers[2].in_training = [rank]() -> bool {
      if (rank == 1) throw std::runtime_error("cannot tell");
      return true;
    };
    Kfac kfac(layers, dp);
    loss_of(net, 0, 0, 8).backward();
    EXPECT_THROW(kfac.step(), std::exception);
    kfac.step();
  });
  EXPECT_EQ(what_of(errors[1]), "cannot tell");
  EXPECT_THAT(message_of<TransportError>([&] { std::rethrow_exception(errors[0]); }), HasSubstr("rank 1"));
}

// ---- samples that are none

torch::Tensor average_of(Kfac& kfac, const std::string& name) { return kfac.state().at(name + ".average"); }

TEST(KfacSamples, PassesWithoutGradientsOrInEvaluationDoNotCount) {
  run_all(2, [](int rank, Group group) {
    Alone plain({}, {}, group.duplicate()), other({}, {}, group);
    for (int step = 0; step < 3; ++step) {
      {
        const torch::NoGradGuard no_grad;
        static_cast<void>(loss_of(other.net, 7, 0, 8));
      }
      other.net->eval();
      static_cast<void>(loss_of(other.net, 8 + rank, 0, 8));
      other.net->train();
      plain.step(step);
      other.step(step);
    }
    const auto expected = plain.kfac.state(), found = other.kfac.state();
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(torch::equal(found.at(name), tensor)) << name;
  });
}

TEST(KfacSamples, GradientsOfGradientsDoNotCount) {
  Alone plain, other;
  for (int step = 0; step < 3; ++step) {
    plain.step(step);
    const torch::Tensor loss = loss_of(other.net, step, 0, 8);
    torch::autograd::grad({loss}, {other.net->last->weight}, {}, true, true);
    loss.backward();
    other.kfac.step();
    other.dp.step();
  }
  EXPECT_TRUE(torch::equal(average_of(other.kfac, "last.G"), average_of(plain.kfac, "last.G")));
}

TEST(KfacSamples, ALayerThatNoPassUsesKeepsNoFactor) {
  Alone one;
  one.step(0);
  EXPECT_FALSE(one.kfac.state().contains("spare.A.average"));
  EXPECT_TRUE(one.kfac.state().contains("last.A.inverse"));
  EXPECT_FALSE(one.net->spare->weight.grad().defined());
}

// Rank 1 alone uses the spare layer, from the second step on.
TEST(KfacSamples, ALayerThatOneRankUsesLaterIsPreconditionedOnAll) {
  for (const char* strategy : {"d-kfac", "mpd-kfac", "spd-kfac", "spd-kfac-owner"}) {
    run_all(2, [&](int rank, Group group) {
      Alone one({.strategy = strategy}, {}, group);
      for (int step = 0; step < 4; ++step) {
        torch::Tensor loss = loss_of(one.net, step, 0, 8);
        if (rank == 1 && step > 0)
          loss = loss +
                 one.net->spare(torch::sin(torch::arange(20, torch::kFloat64)).view({2, 10})).pow(2).mean();
        loss.backward();
        one.kfac.step();
        one.dp.step();
      }
      EXPECT_TRUE(one.kfac.state().contains("spare.G.inverse")) << strategy;
    });
  }
}

TEST(KfacSamples, ABatchOfOneTrains) {
  Alone one;
  for (int step = 0; step < 3; ++step) {
    loss_of(one.net, step, 0, 1).backward();
    one.kfac.step();
    one.dp.step();
  }
  for (const torch::Tensor& tensor : one.net->parameters()) EXPECT_TRUE(tensor.isfinite().all().item<bool>());
}

// The sum by which a step would be clipped is zero, too.
TEST(KfacSamples, GradientsOfZeroStayZero) {
  for (const char* strategy : {"d-kfac", "spd-kfac"}) {
    run_all(2, [&](int, Group group) {
      Alone one({.strategy = strategy}, {}, group);
      (loss_of(one.net, 0, 0, 8) * 0).backward();
      one.kfac.step();
      for (const torch::Tensor& tensor : one.net->parameters())
        EXPECT_EQ(tensor.grad().count_nonzero().item<std::int64_t>(), 0);
      one.dp.step();
      one.step(1);
      for (const torch::Tensor& tensor : one.net->parameters())
        EXPECT_TRUE(tensor.isfinite().all().item<bool>());
    });
  }
}

TEST(KfacSamples, AFactorThatIsNotFiniteChangesNothing) {
  for (const char* strategy : {"d-kfac", "mpd-kfac", "spd-kfac", "spd-kfac-owner"}) {
    run_all(2, [&](int rank, Group group) {
      Alone one({.strategy = strategy}, {}, group);
      one.step(0);
      const auto before = one.kfac.state();
      (loss_of(one.net, 1, 0, 8) * (rank == 0 ? std::nan("") : 1.0)).backward();
      one.kfac.step();
      one.dp.discard_step();
      const auto after = one.kfac.state();
      for (const char* name : {"last.G", "spread.G"}) {
        const std::string average = std::string(name) + ".average";
        EXPECT_TRUE(torch::equal(after.at(average), before.at(average))) << strategy << " " << name;
      }
      one.step(2);
      for (const torch::Tensor& tensor : one.net->parameters())
        EXPECT_TRUE(tensor.isfinite().all().item<bool>());
      EXPECT_GE(one.kfac.report().nonfinite_factors + (std::string(strategy) == "spd-kfac-owner" ? 1 : 0), 1);
    });
  }
}

// ---- inverses

TEST(KfacInverse, IsTheInverse) {
  const torch::Tensor root = torch::sin(torch::arange(400, torch::kFloat32)).view({20, 20});
  const torch::Tensor factor = root.mm(root.t()) / 20;
  const systems::kfac::Inverse inverse = inverse_of(factor, 0.1);
  const torch::Tensor identity = torch::eye(20);
  EXPECT_LE(((factor + 0.1 * identity).mm(inverse.matrix) - identity).abs().max().item<double>(), 1e-4);
  EXPECT_TRUE(torch::equal(inverse.matrix, inverse.matrix.t()));
  EXPECT_EQ(inverse.raised, 0);
}

TEST(KfacInverse, RaisesTheDampingWhereAFactorIsNotPositiveDefinite) {
  const torch::Tensor factor = -torch::eye(3, torch::kFloat64);
  const systems::kfac::Inverse inverse = inverse_of(factor, 0.02);
  EXPECT_EQ(inverse.raised, 2);
  EXPECT_TRUE(torch::allclose(inverse.matrix, torch::eye(3, torch::kFloat64)));  // (2 - 1) I
  EXPECT_FALSE(inverse.given_up);
}

TEST(KfacInverse, IsTheIdentityInTheEnd) {
  for (const torch::Tensor& factor :
       {-1e9 * torch::eye(3), torch::full({3, 3}, std::numeric_limits<float>::quiet_NaN())}) {
    const systems::kfac::Inverse inverse = inverse_of(factor, 0.02);
    EXPECT_TRUE(inverse.given_up);
    EXPECT_TRUE(torch::equal(inverse.matrix, torch::eye(3)));
  }
}

}  // namespace
}  // namespace dear::refusals_test
