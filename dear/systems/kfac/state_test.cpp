// A Kfac keeps a state, for checkpoints, and tells spans of a trace.

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "dear/base/trace/trace.h"
#include "dear/base/vocabulary/error.h"
#include "dear/systems/kfac/testing/trained.h"

namespace dear::kfac_state_test {
namespace {

using systems::kfac::testing::expect_near;
using systems::kfac::testing::Net;
using systems::kfac::testing::Rank;
using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::message_of;
using train::testing::run_all;

using State = std::map<std::string, torch::Tensor>;

struct Saved {
  std::vector<torch::Tensor> parameters;
  State state;
};

// Trains from `first` to `last`, on from what was saved.
Saved train(int ranks, const KfacOptions& options, int first, int last, const Saved* from) {
  std::vector<Saved> results(static_cast<std::size_t>(ranks));
  run_all(ranks, [&](int rank, Group group) {
    Net net;
    if (from != nullptr) {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < from->parameters.size(); ++i)
        net->parameters()[i].copy_(from->parameters[i]);
    }
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05));
    DataParallel dp(*net, sgd, std::move(group), {.buckets = given(Fusion())});
    Kfac kfac(*net, dp, options);
    if (from != nullptr) kfac.load_state(from->state);
    Rank own{net, dp, kfac, rank, ranks};
    for (int step = first; step < last; ++step) take_step(own, step);
    dp.synchronize();
    Saved& result = results[static_cast<std::size_t>(rank)];
    for (const torch::Tensor& tensor : net->parameters())
      result.parameters.push_back(tensor.detach().clone());
    result.state = kfac.state();
  });
  for (const Saved& result : results)
    for (const auto& [name, tensor] : results[0].state)
      EXPECT_TRUE(torch::equal(result.state.at(name), tensor)) << name;
  return results[0];
}

TEST(KfacState, ATrainingGoesOnToTheBit) {
  for (const char* strategy : {"d-kfac", "mpd-kfac-owner", "spd-kfac", "spd-kfac-owner"}) {
    const KfacOptions options{.strategy = strategy, .factor_every = 2, .inverse_every = 4};
    const Saved whole = train(2, options, 0, 11, nullptr);
    const Saved half = train(2, options, 0, 5, nullptr);  // between two renewals
    EXPECT_EQ(half.state.at("steps").item<std::int64_t>(), 5);
    const Saved again = train(2, options, 5, 11, &half);
    for (std::size_t i = 0; i < whole.parameters.size(); ++i)
      EXPECT_TRUE(torch::equal(again.parameters[i], whole.parameters[i])) << strategy << " " << i;
    for (const auto& [name, tensor] : whole.state)
      EXPECT_TRUE(torch::equal(again.state.at(name), tensor)) << strategy << " " << name;
    expect_near(
        train(4, {.strategy = "mpd-kfac", .factor_every = 2, .inverse_every = 4}, 5, 11, &half).parameters,
        whole.parameters);
  }
}

TEST(KfacState, ReplacesThatOfATrainingUnderWay) {
  const KfacOptions options{.factor_every = 1, .inverse_every = 3};
  const Saved half = train(2, options, 0, 4, nullptr);
  run_all(2, [&](int rank, Group group) {
    Net net;
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05));
    DataParallel dp(*net, sgd, std::move(group), {.buckets = given(Fusion())});
    Kfac kfac(*net, dp, options);
    Rank own{net, dp, kfac, rank, 2};
    take_step(own, 0);
    kfac.load_state(half.state);
    const State found = kfac.state();
    ASSERT_EQ(found.size(), half.state.size());
    for (const auto& [name, tensor] : half.state) EXPECT_TRUE(torch::equal(found.at(name), tensor)) << name;
    for (int step = 1; step < 8; ++step) take_step(own, step);
    EXPECT_EQ(kfac.report().steps, 4 + 7);
  });
}

TEST(KfacState, BeforeTheFirstStepIsWhatWasLoaded) {
  const Saved half = train(1, {}, 0, 2, nullptr);
  run_all(1, [&](int, Group group) {
    Net net;
    torch::optim::SGD sgd(net->parameters(), 0.05);
    DataParallel dp(*net, sgd, std::move(group), {.buckets = given(Fusion())});
    Kfac kfac(*net, dp);
    EXPECT_EQ(kfac.state().size(), 1U);  // the number of steps
    kfac.load_state(half.state);
    EXPECT_EQ(kfac.state().size(), half.state.size());
    const auto refusal = [&](const std::function<void(State&)>& change) {
      State state = half.state;
      change(state);
      return message_of<ConfigError>([&] { kfac.load_state(state); });
    };
    EXPECT_THAT(refusal([](State& state) { state["lost.A.average"] = torch::ones({2, 2}); }),
                HasSubstr("lost.A.average"));
    EXPECT_THAT(refusal([](State& state) { state["last.A.average"] = torch::ones({2, 2}); }),
                HasSubstr("last.A.average"));
    EXPECT_THAT(refusal([](State& state) { state.erase("steps"); }), HasSubstr("steps"));
  });
}

TEST(KfacState, OfALayerThatIsExcludedNamesTheOption) {
  const Saved half = train(1, {}, 0, 2, nullptr);
  run_all(1, [&](int, Group group) {
    Net net;
    torch::optim::SGD sgd(net->parameters(), 0.05);
    DataParallel dp(*net, sgd, std::move(group), {.buckets = given(Fusion())});
    Kfac kfac(*net, dp, {.exclude = {"last"}});
    EXPECT_THAT(message_of<ConfigError>([&] { kfac.load_state(half.state); }),
                AllOf(HasSubstr("'last'"), HasSubstr("`exclude`")));
  });
}

TEST(KfacTrace, ShowsFactorsAndInverses) {
  run_all(2, [](int rank, Group group) {
    Net net;
    torch::optim::SGD sgd(net->parameters(), 0.05);
    DataParallel dp(*net, sgd, std::move(group), {.buckets = given(Fusion()), .record_trace = true});
    std::map<std::string, int> seen;
    {
      Kfac kfac(*net, dp, {.strategy = "mpd-kfac", .inverse_every = 2});
      Rank own{net, dp, kfac, rank, 2};
      for (int step = 0; step < 4; ++step) take_step(own, step);
    }
    for (const Span& span : dp.trace().spans) {
      for (const char* kind : {"inverse of factor", "broadcast of inverse", "reduction of factors",
                               "preconditioning", "average of factor", "unpacking of inverse"})
        if (span.name.starts_with(kind)) ++seen[kind];
      if (span.name.starts_with("factor ")) ++seen["factor"];
      EXPECT_LE(span.begin_seconds, span.end_seconds);
      EXPECT_TRUE(!span.name.starts_with("broadcast of inverse") || span.iteration % 2 == 0);
    }
    EXPECT_GE(seen["factor"], 4 * 10);
    EXPECT_EQ(seen["reduction of factors"], 4);
    EXPECT_EQ(seen["broadcast of inverse"], 2 * 12);
    EXPECT_GE(seen["inverse of factor"], 2);
    EXPECT_EQ(seen["average of factor"], 4 * 12);
    EXPECT_EQ(seen["unpacking of inverse"], 2 * 6) << "those of the other rank";
    EXPECT_GE(seen["preconditioning"], 4 * 5);
  });
}

TEST(KfacReport, SaysWhatWasPlanned) {
  run_all(2, [](int rank, Group group) {
    Net net;
    torch::optim::SGD sgd(net->parameters(), 0.05);
    DataParallel dp(*net, sgd, std::move(group), {.buckets = given(Fusion())});
    Kfac kfac(*net, dp, {.strategy = "mpd-kfac"});
    EXPECT_EQ(kfac.report().plan, "");
    Rank own{net, dp, kfac, rank, 2};
    take_step(own, 0);
    EXPECT_THAT(kfac.report().plan, HasSubstr("6 by rank 1"));
    EXPECT_EQ(kfac.report().layers.size(), 6U);
  });
}

}  // namespace
}  // namespace dear::kfac_state_test
