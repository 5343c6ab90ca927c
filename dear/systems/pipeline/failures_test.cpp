// Bad input is one sentence on every rank, and who waits for a rank that fails says which stage, operator and
// micro-batch it waited for.

#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/comm/shm/testing/ranks.h"
#include "dear/systems/pipeline/testing/killed.h"
#include "dear/systems/pipeline/testing/nets.h"

namespace dear::systems::pipeline::failures_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using testing::expect_a_killed_rank_is_named;
using testing::groups_of;
using ::testing::HasSubstr;
using testing::loss_of;
using testing::Net;
using testing::run_on;
using ::testing::StartsWith;
using testing::Tensors;

constexpr std::int64_t kWidth = testing::kWidth;

struct Chain : Net {
  // `act` is called in the operator behind, in each pass but that of the sample, with the number of the pass.
  explicit Chain(const std::function<void(int)>& act = {}) {
    const auto layer = [&](const char* name) {
      return root->register_module(name, torch::nn::Linear(kWidth, kWidth));
    };
    const auto front = layer("front"), behind = layer("behind");
    const auto x = model.add("front", front, {PipelineModel::batch()});
    model.add_function("behind",
                       [behind, act, passes = std::make_shared<int>(-1)](const Tensors& read) {
                         if (act && *passes >= 0) act(*passes);
                         ++*passes;
                         return behind->forward(read[0]);
                       },
                       {x}, {behind->weight, behind->bias});
  }
};
const PipelineOptions kOptions{.micro_batches = 4, .measure = false};
const torch::Tensor& whole_batch() {
  static const torch::Tensor kBatch = torch::sin(torch::arange(8 * kWidth)).view({8, kWidth});
  return kBatch;
}

void step(const Chain& chain, const Group& group) {
  Pipeline pipe(chain.model, {whole_batch()}, group, kOptions);
  pipe.step({whole_batch()}, whole_batch(), loss_of);
}

TEST(Failures, OfAnOperatorAreToldToAll) {
  EXPECT_THAT(run_on(groups_of(2),
                     [](int /*rank*/, const Group& group) {
                       step(Chain([](int pass) {
                              if (pass == 2) throw std::runtime_error("no more numbers");
                            }),
                            group);
                     }),
              ::testing::ElementsAre(
                  AllOf(StartsWith("TransportError: rank 0: stage 0 ('front')"),
                        HasSubstr("of operator 'front' of micro-batch"),
                        HasSubstr("stage 1 ('behind') on rank 1"), HasSubstr("no more numbers")),
                  HasSubstr("rank 1: operator 'behind' of micro-batch 2 failed: no more numbers")));
}

TEST(Failures, OfARankThatLeavesNameIt) {
  EXPECT_THAT(run_on(groups_of(2),
                     [](int rank, const Group& group) {
                       const Chain chain;
                       Pipeline pipe(chain.model, {whole_batch()}, group, kOptions);
                       if (rank == 0) pipe.step({whole_batch()}, whole_batch(), loss_of);
                     })[0],
              AllOf(StartsWith("TransportError"), HasSubstr("rank 1")));
}

// Rank 0, whose part of a step is done, learns of it when it begins the next one.
TEST(Failures, OfARankThatLeavesBetweenStepsSayThatNoOperatorWasWaitedFor) {
  EXPECT_THAT(run_on(groups_of(2),
                     [](int rank, const Group& group) {
                       const Chain chain;
                       Pipeline pipe(chain.model, {whole_batch()}, group, kOptions);
                       pipe.step({whole_batch()}, whole_batch(), loss_of);
                       if (rank == 0) pipe.step({whole_batch()}, whole_batch(), loss_of);
                     })[0],
              AllOf(StartsWith("TransportError: rank 0: it had done its part"),
                    HasSubstr("waited for no operator, but for the others to begin the next step"),
                    HasSubstr("rank 1")));
}

TEST(Failures, OfADeadlineNameStageAndMicroBatch) {
  std::promise<void> over;
  auto waits = over.get_future();
  const auto reports = run_on(groups_of(2, std::chrono::seconds(2)), [&](int rank, const Group& group) {
    const Chain chain([&](int pass) {
      if (pass == 0 && rank == 1) waits.wait();
    });
    try {
      step(chain, group);
    } catch (...) {
      if (rank == 0) over.set_value();
      throw;
    }
  });
  EXPECT_THAT(
      reports[0],
      AllOf(StartsWith("TimeoutError: rank 0: stage 0 ('front') waited for the gradient of the output of "
                       "operator 'front' of micro-batch 0 from stage 1 ('behind') on rank 1"),
            HasSubstr("rank 1")));
  EXPECT_THAT(reports[1], HasSubstr("rank 1"));
}

TEST(Failures, OfAKilledRankNameItAndWhatItWasWaitedFor) {
  const std::string rendezvous = backends::testing::fresh_rendezvous();
  expect_a_killed_rank_is_named([&](int rank) { return backends::testing::meet_as(rank, 3, rendezvous); });
}

TEST(Refusals, OfABatchLeaveThePipelineWhole) {
  const Chain chains[2];
  EXPECT_THAT(run_on(groups_of(2),
                     [&](int rank, const Group& group) {
                       Pipeline pipe(chains[rank].model, {whole_batch()}, group, kOptions);
                       const auto refused = [&](const Tensors& batch, const torch::Tensor& targets,
                                                const char* why) {
                         EXPECT_THAT(os::testing::report_of([&] { pipe.step(batch, targets, loss_of); }),
                                     AllOf(StartsWith("ConfigError: rank "), HasSubstr(why)));
                       };
                       refused({whole_batch().narrow(0, 0, 4)}, whole_batch(),
                               "rank 0: tensor 0 of the batch, which operator 'front' reads, is [4, 6] of "
                               "Float, where the sample "
                               "was [8, 6] of Float");
                       refused({}, whole_batch(), "is not there");
                       refused({whole_batch()}, whole_batch().narrow(0, 0, 4),
                               "rank 1: targets are [4, 6] of Float, and the batch has 8 samples");
                       refused({whole_batch()}, {}, "targets are not there");
                       // Each gives what its stages read.
                       pipe.step(rank == 0 ? Tensors{whole_batch()} : Tensors{},
                                 rank == 1 ? whole_batch() : torch::Tensor(), loss_of);
                     }),
              Each("ok"));
}

TEST(Refusals, OfOptionsAreOneSentenceOnAllRanks) {
  const auto refused = [](const PipelineOptions& options, const torch::Tensor& sample = whole_batch()) {
    const auto reports = run_on(groups_of(2), [&](int /*rank*/, const Group& group) {
      const Chain chain;
      Pipeline(chain.model, {sample}, group, options);
    });
    EXPECT_EQ(reports[0].substr(0, 11), "ConfigError");
    EXPECT_THAT(reports[1], HasSubstr(reports[0].substr(13)));
    return reports[0];
  };
  EXPECT_THAT(refused({.micro_batches = 3}), HasSubstr("a batch of 8 cannot be cut into 3 micro-batches"));
  EXPECT_THAT(refused({.micro_batches = 0}), HasSubstr("0 micro-batches"));
  EXPECT_THAT(refused({.micro_batches = 4, .stages = 3}), HasSubstr("3 stages cannot be dealt to 2 ranks"));
  EXPECT_THAT(refused({.micro_batches = 4, .stages = 4, .schedule = "zb-h1"}), HasSubstr("zb-h1"));
  EXPECT_THAT(refused({.micro_batches = 4, .replicas = 3}), HasSubstr("3 replicas on 2 ranks"));
  EXPECT_THAT(refused({.micro_batches = 4, .schedule = "2f2b"}), HasSubstr("2f2b"));
  EXPECT_THAT(refused({.micro_batches = 4, .method = "best"}), HasSubstr("best"));
  EXPECT_THAT(refused({.micro_batches = 4, .compression = "top-k", .ratio = 0.5}), HasSubstr("0.5"));
  EXPECT_THAT(refused({.micro_batches = 4, .plan_file = "/nowhere.json"}), HasSubstr("/nowhere.json"));
  EXPECT_THAT(refused(kOptions, torch::Tensor()), HasSubstr("dimension 0"));
}

TEST(Refusals, OfOperatorsAreOneSentence) {
  const auto refused = [](const std::function<void(Net&, std::shared_ptr<torch::nn::LinearImpl>&)>& make) {
    return os::testing::report_of([&] {
      Net net;
      auto layer = net.root->register_module("layer", torch::nn::Linear(kWidth, kWidth));
      make(net, layer);
      Pipeline(net.model, {whole_batch()}, groups_of(1)[0], kOptions);
    });
  };
  const auto x = PipelineModel::batch();
  const auto twice = [](const Tensors& read) { return 2 * read[0]; };
  EXPECT_THAT(refused([&](Net& net, auto& layer) { net.model.add("", layer, {x}); }),
              HasSubstr("has no name"));
  EXPECT_THAT(
      refused([&](Net& net, auto& layer) { net.model.add("a", layer, {net.model.add("a", layer, {x})}); }),
      HasSubstr("'a' of a pipeline is there twice"));
  EXPECT_THAT(refused([&](Net& net, auto& layer) { net.model.add("a", layer, {}); }),
              HasSubstr("reads nothing"));
  EXPECT_THAT(refused([&](Net& net, auto& layer) { net.model.add("a", layer, {{.maker = 3}}); }),
              HasSubstr("a value that no operator before it makes"));
  EXPECT_THAT(refused([&](Net& net, auto&) { net.model.add("a", torch::nn::Linear(kWidth, kWidth), {x}); }),
              HasSubstr("no parameter or buffer of the model"));
  EXPECT_THAT(refused([&](Net& net, auto&) {
                const torch::nn::Linear other(kWidth, kWidth);
                net.model.add_function(
                    "a", [other](const Tensors& read) { return torch::linear(read[0], other->weight); }, {x});
              }),
              HasSubstr("requires a gradient and is no parameter of the model"));
  EXPECT_THAT(refused([&](Net& net, auto&) { net.model.add_function("a", twice, {x}); }),
              HasSubstr("'a' is the last one"));
  EXPECT_THAT(refused([&](Net& net, auto& layer) {
                net.model.add_function("a", twice, {x});
                net.model.add("b", layer, {x});
              }),
              HasSubstr("'a' is read by none"));
  EXPECT_THAT(refused([&](Net& net, auto& layer) {
                const auto a = net.model.add("a", layer, {x});
                net.model.add_function(
                    "b", [](const Tensors& read) { return read[0].detach().add_(1) + read[0]; }, {a});
              }),
              HasSubstr("'b' changes in place what it reads"));
  EXPECT_THAT(refused([&](Net& net, auto& layer) { net.model.add("a", layer, {PipelineModel::batch(2)}); }),
              HasSubstr("reads tensor 2 of the batch, and the sample has 1"));
  EXPECT_THAT(refused([&](Net& net, auto&) {
                net.model.add_function("a", [](const Tensors& read) { return read[0].mm(read[0]); }, {x});
              }),
              HasSubstr("'a' cannot compute the sample"));
}

}  // namespace
}  // namespace dear::systems::pipeline::failures_test
