// Ranks that share one copy of the parameters: every hazard of [Note: one copy], with ranks that are late on
// purpose, and what is refused.

#include <array>
#include <atomic>
#include <cstring>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/shaped/shaped.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::one_copy_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

constexpr std::int64_t kFeatures = 16;
constexpr int kRanks = 3;
constexpr int kSteps = 7;

// The same on whichever thread.
torch::nn::Sequential make_net() {
  torch::nn::Sequential net(torch::nn::Linear(kFeatures, 64), torch::nn::Tanh(), torch::nn::Linear(64, 65),
                            torch::nn::Tanh(), torch::nn::Linear(65, 3));
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& tensor : net->parameters())
    tensor.copy_(0.2 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
  return net;
}

// The bytes of all parameters as they lie there, past the observer: who looks too early sees too much.
std::string bytes_of(torch::nn::Sequential& net) {
  std::string bytes;
  for (const torch::Tensor& tensor : net->parameters())
    bytes.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  return bytes;
}

struct Rank {
  Rank(int rank_, const Group& group, const DataParallelOptions& options,
       std::array<std::atomic<int>, kRanks>& s)
      : rank(rank_),
        stepped(s),
        net(make_net()),
        adamw(net->parameters(), 1e-2),
        parallel(*net, adamw, group, options) {}

  // Reads the parameters, while they may not change, until all others are back from as many calls of step(),
  // and on for so long that whoever were wrongly free to update would have.
  void linger(int steps) {
    const std::string before = bytes_of(net);
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    int more = 300;
    while (more > 0) {
      bool all = true;
      for (int other = 0; other < kRanks; ++other)
        all = all && (other == rank || stepped[static_cast<std::size_t>(other)].load() >= steps);
      if (all) --more;
      ASSERT_EQ(bytes_of(net) == before, true) << "rank " << rank << " saw another one's update";
      ASSERT_FALSE(deadline.expired());
      std::this_thread::yield();
    }
  }
  void step() {
    parallel.step();
    ++taken;
    stepped[static_cast<std::size_t>(rank)].store(taken);
  }

  int rank;
  std::array<std::atomic<int>, kRanks>& stepped;
  torch::nn::Sequential net;
  torch::optim::AdamW adamw;
  DataParallel parallel;
  int taken = 0;
};

// One iteration of a program; `late` is one rank at a time.
using Iteration = std::function<void(Rank&, bool late)>;

std::string digest_of(const Iteration& iteration, const DataParallelOptions& options) {
  std::array<std::atomic<int>, kRanks> stepped{};
  std::vector<std::string> digests(kRanks);
  run_all(kRanks, [&](int index, Group group) {
    Rank rank(index, group, options, stepped);
    for (int i = 0; i < kSteps; ++i) iteration(rank, options.one_copy && i > 0 && i % kRanks == index);
    rank.parallel.synchronize();
    digests[static_cast<std::size_t>(index)] = parameter_digest(*rank.net);
  });
  for (const std::string& digest : digests) EXPECT_EQ(digest, digests[0]);
  return digests[0];
}

torch::Tensor loss_of(Rank& rank, torch::Tensor* inputs = nullptr) {
  const auto batch = rows(rank.taken, rank.rank * 2, 2, kFeatures);
  torch::Tensor x = batch.inputs;
  if (inputs != nullptr) {
    x = x.requires_grad_() * 1;
    *inputs = x;
  }
  return torch::mse_loss(rank.net->forward(x), batch.targets);
}

// A rank that is late may read parameters wherever it could without one copy.
const std::vector<std::pair<std::string, Iteration>>& programs() {
  static const std::vector<std::pair<std::string, Iteration>> all = {
      {"BetweenBackwardAndStep",
       [](Rank& rank, bool late) {
         loss_of(rank).backward();
         if (late) rank.linger(rank.taken + 1);
         rank.step();
       }},
      // The last hook of the pass: all gradients of parameters have arrived by then.
      {"InTheBackwardAfterEveryGradient",
       [](Rank& rank, bool late) {
         torch::Tensor inputs;
         const torch::Tensor loss = loss_of(rank, &inputs);
         inputs.register_hook([&](torch::Tensor) {
           if (late) rank.linger(rank.taken + 1);
         });
         loss.backward();
         rank.step();
       }},
      {"InASecondPassThroughTheSameGraph",
       [](Rank& rank, bool late) {
         torch::Tensor inputs;
         const torch::Tensor loss = loss_of(rank, &inputs);
         loss.backward({}, true);
         const auto gradient = [&] { return torch::autograd::grad({loss}, {inputs}, {}, true)[0].clone(); };
         const torch::Tensor first = gradient();
         if (late) rank.linger(rank.taken + 1);
         EXPECT_TRUE(torch::equal(gradient(), first));
         rank.step();
       }},
      // The weight is read by a branch that sends it no gradient, and by a loss of its own.
      {"ThroughADetachedWeightAndAPenalty",
       [](Rank& rank, bool late) {
         const torch::Tensor weight = rank.net->parameters()[4];
         torch::Tensor inputs;
         torch::Tensor loss = loss_of(rank, &inputs);
         loss = loss + 1e-3 * weight.pow(2).sum();
         const torch::Tensor branch = torch::ones({1, 65}).requires_grad_();
         loss = loss + 1e-3 * torch::linear(branch * 2, weight.detach()).sum();
         inputs.register_hook([&](torch::Tensor) {
           if (late) rank.linger(rank.taken + 1);
         });
         loss.backward();
         const double norm = weight.norm().item<double>();
         if (late) rank.linger(rank.taken + 1);
         EXPECT_EQ(weight.norm().item<double>(), norm);
         rank.step();
       }},
      {"WhileItEvaluatesAndOthersTrainOn",
       [](Rank& rank, bool late) {
         loss_of(rank).backward();
         rank.step();
         if (late && rank.taken < kSteps) {
           rank.parallel.synchronize();
           const torch::NoGradGuard no_grad;
           const torch::Tensor seen = rank.net->forward(torch::ones({4, kFeatures}));
           rank.linger(rank.taken + 1);
           EXPECT_TRUE(torch::equal(rank.net->forward(torch::ones({4, kFeatures})), seen));
         }
       }},
      // Values of its own between step() and the next forward, as torch::load() brings them.
      {"BeforeItLoadsWhatOthersHaveLoaded",
       [](Rank& rank, bool late) {
         loss_of(rank).backward();
         rank.step();
         if (rank.taken % 3 != 2) return;
         rank.parallel.synchronize();
         if (late) rank.linger(rank.taken + 1);
         for (torch::Tensor parameter : rank.net->parameters())
           parameter.set_data(parameter.detach().clone().mul_(0.5));
       }},
      // Without synchronize(): operators wait for what they read.
      {"RightAfterStep",
       [](Rank& rank, bool late) {
         loss_of(rank).backward();
         rank.step();
         const torch::Tensor norm = rank.net->parameters()[0].norm();
         if (late && rank.taken < kSteps) {
           rank.parallel.synchronize();
           rank.linger(rank.taken + 1);
         }
         EXPECT_TRUE(torch::equal(rank.net->parameters()[0].norm(), norm));
       }},
  };
  return all;
}

class LateRanks : public ::testing::TestWithParam<std::tuple<std::size_t, std::string>> {};

TEST_P(LateRanks, SeeNoUpdateBeforeTheyCommit) {
  const auto& [index, fusion] = GetParam();
  const Iteration& program = programs()[index].second;
  const std::string expected = digest_of(program, {.buckets = given(Fusion::parse(fusion))});
  EXPECT_EQ(digest_of(program, {.buckets = given(Fusion::parse(fusion)), .one_copy = true}), expected);
}

INSTANTIATE_TEST_SUITE_P(All, LateRanks,
                         ::testing::Combine(::testing::Range<std::size_t>(0, 7),
                                            ::testing::Values("layer", "all")),
                         [](const auto& info) {
                           return programs()[std::get<0>(info.param)].first + "By" + std::get<1>(info.param);
                         });

// [Note: one copy] as the clock sees it: no update of any rank begins before every rank has called step(),
// and none is at work when any rank's parameters are whole.
TEST(OneCopy, UpdatesStartAfterTheLastRankHasCommitted) {
  std::array<std::atomic<int>, kRanks> stepped{};
  std::array<std::array<double, kSteps>, kRanks> called{}, whole{};
  std::array<Trace, kRanks> traces;
  run_all(kRanks, [&](int index, Group group) {
    const auto at = static_cast<std::size_t>(index);
    Rank rank(index, group,
              {.buckets = given(Fusion::parse("layer")), .one_copy = true, .record_trace = true}, stepped);
    for (std::size_t i = 0; i < kSteps; ++i) {
      loss_of(rank).backward();
      // Not in the first iteration, whose step() waits for all ranks.
      if (i > 0 && static_cast<int>(i % kRanks) == index) rank.linger(rank.taken + 1);
      called[at][i] = now_seconds();
      rank.step();
      rank.parallel.synchronize();
      whole[at][i] = now_seconds();
    }
    traces[at] = rank.parallel.trace();
  });
  int updates = 0;
  for (const Trace& trace : traces) {
    for (const Span& span : trace.spans) {
      if (span.activity != Activity::update) continue;
      ++updates;
      const auto i = static_cast<std::size_t>(span.iteration);
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        EXPECT_GE(span.begin_seconds, called[rank][i]);
        EXPECT_LE(span.end_seconds, whole[rank][i]);
      }
    }
  }
  EXPECT_EQ(updates, kRanks * kSteps * 3);
}

TEST(OneCopy, IsOneMemoryUntilTheEndAndEachRanksOwnAfterwards) {
  std::array<std::atomic<int>, kRanks> stepped{};
  std::array<std::vector<void*>, kRanks> parameters, gradients;
  run_all(kRanks, [&](int index, Group group) {
    const auto at = static_cast<std::size_t>(index);
    std::optional<Rank> rank(std::in_place, index, group,
                             DataParallelOptions{.buckets = given(Fusion::parse("all")), .one_copy = true},
                             stepped);
    for (int i = 0; i < 2; ++i) {
      loss_of(*rank).backward();
      rank->step();
    }
    rank->parallel.synchronize();
    torch::nn::Sequential net = rank->net;
    for (const torch::Tensor& tensor : net->parameters()) {
      parameters[at].push_back(tensor.data_ptr());
      gradients[at].push_back(tensor.grad().data_ptr());
    }
    const std::string trained = bytes_of(net);
    rank.reset();
    EXPECT_EQ(bytes_of(net), trained);
    const torch::NoGradGuard no_grad;
    for (torch::Tensor tensor : net->parameters()) tensor.fill_(index);
    group.barrier().wait();
    for (const torch::Tensor& tensor : net->parameters()) EXPECT_TRUE((tensor == index).all().item<bool>());
  });
  // Threads map the memory at one place.
  EXPECT_EQ(parameters[0], parameters[1]);
  EXPECT_EQ(parameters[0], parameters[2]);
  EXPECT_NE(gradients[0], gradients[1]);
}

TEST(OneCopy, TakesOverWhatWasLoadedWhenItIsRegrouped) {
  const auto train = [](bool one_copy) {
    return digest_of(
        [](Rank& rank, bool) {
          loss_of(rank).backward();
          rank.step();
          if (rank.taken != 3) return;
          rank.parallel.synchronize();
          for (torch::Tensor parameter : rank.net->parameters())
            parameter.set_data(parameter.detach().clone().neg_());
          rank.parallel.regroup(Fusion::parse("all"));
        },
        {.buckets = given(Fusion::parse("layer")), .one_copy = one_copy});
  };
  EXPECT_EQ(train(true), train(false));
}

// ---- what is refused

// The error of rank 1, which does `act` after its second step; the others' come from it.
std::string refusal_of(const std::function<void(Rank&)>& act, const std::string& policy = "dear") {
  std::array<std::atomic<int>, kRanks> stepped{};
  std::array<std::string, kRanks> before, after;
  const auto errors = run_each(groups_of(kRanks), [&](int index, Group group) {
    Rank rank(index, group, {.policy = policy, .buckets = given(Fusion::parse("layer")), .one_copy = true},
              stepped);
    for (int i = 0; i < 4; ++i) {
      loss_of(rank).backward();
      rank.step();
      if (i == 1 && index == 1) act(rank);
    }
    rank.parallel.synchronize();
  });
  for (const std::exception_ptr& error : errors) EXPECT_NE(what_of(error), "");
  EXPECT_LE(stepped[0].load(), 3);
  EXPECT_EQ(stepped[1].load(), 2);
  return what_of(errors[1]);
}

const auto written_in_place = [](const std::string& name) {
  return AllOf(HasSubstr("rank 1: parameter '" + name + "' was written in place"), HasSubstr("set_data()"));
};

TEST(OneCopyRefuses, WritesInPlace) {
  EXPECT_THAT(refusal_of([](Rank& rank) {
                const torch::NoGradGuard no_grad;
                rank.net->parameters()[2].clamp_(-0.1, 0.1);
              }),
              written_in_place("2.weight"));
  EXPECT_THAT(refusal_of([](Rank& rank) { rank.net->parameters()[1].detach().copy_(torch::ones({64})); }),
              written_in_place("0.bias"));
}

TEST(OneCopyRefuses, TheProgramsOwnOptimizerStep) {
  EXPECT_THAT(refusal_of([](Rank& rank) { rank.adamw.step(); }), HasSubstr("it was stepped itself"));
}

TEST(OneCopyRefuses, WritesInPlaceAheadOfTheCommit) {
  EXPECT_THAT(refusal_of(
                  [](Rank& rank) {
                    const torch::NoGradGuard no_grad;
                    rank.net->parameters()[0].mul_(2);
                  },
                  "dear-eager"),
              written_in_place("0.weight"));
}

TEST(OneCopyRefuses, NewValuesUnderUpdatesAheadOfTheCommit) {
  EXPECT_THAT(refusal_of(
                  [](Rank& rank) {
                    torch::Tensor parameter = rank.net->parameters()[0];
                    parameter.set_data(parameter.detach().clone());
                  },
                  "dear-eager"),
              ContainsRegex("rank 1: parameter '0.weight' was replaced.* dear-eager"));
}

TEST(OneCopyRefuses, ANewShape) {
  EXPECT_THAT(refusal_of([](Rank& rank) { rank.net->parameters()[5].set_data(torch::ones({1})); }),
              ContainsRegex("rank 1: parameter '4.bias' .* shape .1., Float.* 3 elements"));
}

TEST(OneCopyRefuses, PoliciesThatUpdateWholeBuckets) {
  for (const std::string policy : {"serial", "wfbp", "dear-replicated"}) {
    for (const int ranks : {1, 2}) {
      for (const auto& error : run_each(groups_of(ranks), [&](int, Group group) {
             torch::nn::Sequential net = make_net();
             torch::optim::SGD sgd(net->parameters(), 0.1);
             DataParallel(*net, sgd, group, {.policy = policy, .buckets = given(), .one_copy = true});
           }))
        EXPECT_THAT(what_of(error), ContainsRegex("^policy " + policy + " .*one copy"));
    }
  }
}

std::vector<std::string> start_on(std::vector<Group> groups, const std::function<bool(int)>& one_copy) {
  std::vector<std::string> said;
  for (const auto& error : run_each(std::move(groups), [&](int rank, Group group) {
         torch::nn::Sequential net = make_net();
         torch::optim::SGD sgd(net->parameters(), 0.1);
         DataParallel(*net, sgd, group, {.buckets = given(), .one_copy = one_copy(rank)});
       }))
    said.push_back(what_of(error));
  return said;
}

TEST(OneCopyRefuses, GroupsWithoutSharedMemory) {
  std::vector<Group> modelled;
  for (auto& backend : backends::testing::make_shm_threads(2))
    modelled.emplace_back(
        backends::make_shaped(
            std::move(backend),
            {.name = "slow", .link = {.alpha_seconds = 1e-5, .beta_seconds_per_byte = 1e-9}}),
        Group::Options{});
  EXPECT_THAT(start_on(std::move(modelled), [](int) { return true; }),
              ::testing::Each(HasSubstr("leave the modelled network out")));
}

TEST(OneCopyRefuses, RanksThatDisagree) {
  EXPECT_THAT(start_on(groups_of(2), [](int rank) { return rank == 0; }),
              ::testing::Each(HasSubstr("choice of one copy")));
}

TEST(OneCopyOfOneRank, IsWhatItHasAnyway) {
  EXPECT_THAT(start_on(groups_of(1), [](int) { return true; }), ::testing::Each(""));
}

}  // namespace
}  // namespace dear::one_copy_test
