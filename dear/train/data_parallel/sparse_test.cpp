// Gradients of embeddings that come sparse: reduced as rows, with the bits of dense ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/train/data_parallel/join.h"
#include "dear/train/data_parallel/testing/host_collectives.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/data_parallel/watch.h"

namespace dear::sparse_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using train::testing::run_all;

constexpr std::int64_t kWords = 300, kWidth = 12;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool sparse = true) {
    using torch::nn::EmbeddingOptions;
    words = register_module("words", torch::nn::Embedding(EmbeddingOptions(kWords, kWidth).sparse(sparse)));
    places = register_module("places", torch::nn::Embedding(EmbeddingOptions(4, kWidth).sparse(sparse)));
    bias = register_parameter("bias", torch::zeros({kWidth}));
    head = register_module("head", torch::nn::Linear(kWidth, 3));
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& tensor : parameters())
      tensor.copy_(0.3 * torch::sin(torch::arange(1, tensor.numel() + 1, torch::kFloat32)).view_as(tensor));
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    torch::Tensor x = torch::tanh(bias).unsqueeze(0);
    if (tokens.defined()) x = x + torch::tanh(words(tokens) + places(tokens % 4));
    return head(x).square().mean();
  }
  torch::nn::Embedding words{nullptr}, places{nullptr};
  torch::Tensor bias;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

// Few words, of which some come twice; in step 3 rank 0 has none, in step 4 nobody, in step 5 rank 1 has all.
torch::Tensor tokens_of(int step, int rank, int pass = 0) {
  if ((step == 3 && rank == 0) || step == 4) return {};
  if (step == 5 && rank == 1) return torch::arange(kWords);
  const torch::Tensor some = torch::arange(5) * (7 + rank) + 13 * step + 31 * pass;
  return torch::cat({some, some.slice(0, 1, 3)}) % kWords;
}

constexpr int kSteps = 9;

struct Case {
  std::string policy;
  bool changes = true;  // clips, and gives a step up
  bool adamw = true;
};

struct Trained {
  std::string digest;
  DataParallelStatistics statistics;
  std::vector<std::string> said;
  MemoryReport memory;
};

template <typename Optimiser>
Trained train_with(Optimiser& optimiser, Net& net, const Case& one, const Group& group,
                   DataParallelOptions options) {
  Trained result;
  options.policy = one.policy;
  options.say = [&](const std::string& sentence) { result.said.push_back(sentence); };
  DataParallel dp(*net, optimiser, group, options);
  for (int step = 0; step < kSteps; ++step) {
    if (step % 2 == 1) optimiser.zero_grad();  // to none: the next gradient comes sparse
    if (step == 6) {                           // two passes
      dp.defer();
      net->forward(tokens_of(step, group.rank(), 1)).backward();
      dp.resume();
    }
    net->forward(tokens_of(step, group.rank())).backward();
    if (one.changes && step == 2) dp.clip_gradients_by_norm(0.01);
    if (one.changes && step == 7) dp.clip_gradients_by_value(1e-3);
    one.changes&& step == 1 ? dp.discard_step() : dp.step();
    if (step == 2) dp.regroup(Fusion::parse("all"));
  }
  dp.synchronize();
  result.digest = parameter_digest(*net);
  result.statistics = dp.statistics();
  result.memory = dp.watch().memory();
  return result;
}

Trained train(const Case& one, const Group& group, const DataParallelOptions& options) {
  Net net;
  if (one.adamw) {
    torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
    return train_with(adamw, net, one, group, options);
  }
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  return train_with(sgd, net, one, group, options);
}

class SparseGradients : public ::testing::TestWithParam<std::tuple<std::string, int>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SparseGradients,
                         ::testing::Combine(::testing::Values("serial", "wfbp", "dear-replicated", "dear",
                                                              "dear-eager"),
                                            ::testing::Values(2, 4)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           std::erase(name, '-');
                           return name + "On" + std::to_string(std::get<1>(info.param));
                         });

TEST_P(SparseGradients, AreReducedAsRowsWithTheBitsOfDenseOnes) {
  const auto& [policy, ranks] = GetParam();
  for (const bool adamw : {true, false}) {
    const Case one{.policy = policy, .changes = policy != "dear-eager", .adamw = adamw};
    run_all(ranks, [&](int, const Group& group) {
      const DataParallelOptions options{.buckets = given(Fusion::parse("layer")), .profile_steps = 2};
      DataParallelOptions dense = options;
      dense.sparse_rows = false;
      const Trained expected = train(one, group.duplicate(), dense);
      const Trained found = train(one, group.duplicate(), options);
      EXPECT_EQ(found.digest, expected.digest);
      EXPECT_EQ(expected.statistics.sparse_as_rows, 0);
      EXPECT_EQ(found.statistics.sparse_made_dense, 1);
      EXPECT_EQ(found.statistics.sparse_as_rows, kSteps - 1);
      EXPECT_LT(found.statistics.bytes, expected.statistics.bytes);
      EXPECT_GT(found.memory.compression, 0);
    });
  }
}

// On a device rows travel from the host; after a step in which they are too many the gradient stays there.
TEST(SparseGradients, OnADeviceAreReducedAsRowsWithTheBitsOfDenseOnes) {
  for (const char* policy : {"dear", "wfbp"}) {
    run_all(2, [&](int, const Group& group) {
      DataParallelOptions options{.buckets = given(Fusion::parse("layer"))};
      options.streams = std::make_shared<train::testing::HostCollectives>(group);
      DataParallelOptions dense = options;
      dense.sparse_rows = false;
      const Case one{.policy = policy};
      const Trained expected = train(one, group.duplicate(), dense);
      const Trained found = train(one, group.duplicate(), options);
      EXPECT_EQ(found.digest, expected.digest);
      EXPECT_EQ(found.statistics.sparse_made_dense, 1);
      EXPECT_EQ(found.statistics.sparse_as_rows, 3);  // those before step 4, but the one that says so
      EXPECT_LT(found.statistics.bytes, expected.statistics.bytes);
    });
  }
}

// Sums of equal words are exact in either order.
TEST(SparseGradientsOf, AUnionOfBatchesAreThoseOfOneProcess) {
  for (const int ranks : {1, 2, 4}) {
    Net alone(false);
    torch::optim::SGD by_hand(alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < kSteps; ++step) {
      by_hand.zero_grad();
      for (int rank = 0; rank < ranks; ++rank)
        (alone->forward(tokens_of(step, rank)) / static_cast<double>(ranks)).backward();
      by_hand.step();
    }
    run_all(ranks, [&](int rank, const Group& group) {
      Net net;
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      DataParallel dp(*net, sgd, group, {.buckets = given()});
      for (int step = 0; step < kSteps; ++step) {
        net->forward(tokens_of(step, rank)).backward();
        dp.step();
      }
      dp.synchronize();
      for (std::size_t i = 0; i < net->parameters().size(); ++i)
        EXPECT_TRUE(net->parameters()[i].allclose(alone->parameters()[i], 1e-5, 1e-7)) << i;
    });
  }
}

TEST(SparseGradientsOf, EachEmbeddingAreSaidOnceOnRank0) {
  run_all(2, [](int rank, const Group& group) {
    const Trained found = train({.policy = "dear"}, group, {.buckets = given(Fusion::parse("layer"))});
    if (rank == 0) {
      EXPECT_THAT(found.said,
                  ElementsAre(AllOf(HasSubstr("'places.weight'"), HasSubstr("dense")),
                              AllOf(HasSubstr("'words.weight'"), HasSubstr("of 300"), HasSubstr("rows"))));
    } else {
      EXPECT_THAT(found.said, ElementsAre());
    }
  });
}

TEST(SparseGradientsOf, CompressedTrainingTravelCompressed) {
  run_all(2, [](int rank, const Group& group) {
    const Trained found =
        train({.policy = "dear", .changes = false}, group,
              {.buckets = given(Fusion::parse("layer")), .compression = Compression::parse("top-k:0.05,ef")});
    EXPECT_EQ(found.statistics.sparse_as_rows, 0);
    if (rank == 0) {
      EXPECT_THAT(found.said, ElementsAre(HasSubstr("compressed"), HasSubstr("compressed")));
    }
  });
}

TEST(SparseGradientsOf, RanksWithoutDataCountAsZero) {
  for (const char* policy : {"wfbp", "dear"}) {
    run_all(2, [&](int rank, const Group& group) {
      std::string digests[2];
      for (const bool rows : {false, true}) {
        Net net;
        torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-2));
        DataParallel dp(*net, adamw, group.duplicate(),
                        {.policy = policy, .buckets = given(), .sparse_rows = rows});
        Join join(dp);
        for (int step = 0; step < (rank == 0 ? 5 : 2); ++step) {
          net->forward(tokens_of(step + 6, rank)).backward();
          dp.step();
        }
        join.end();
        dp.synchronize();
        digests[rows] = parameter_digest(*net);
        EXPECT_EQ(dp.statistics().sparse_as_rows, rows ? 5 : 0);
      }
      EXPECT_EQ(digests[0], digests[1]);
    });
  }
}

}  // namespace
}  // namespace dear::sparse_test
