// Large buckets that travel in chunks: the same bits as whole ones, whatever else is asked for.

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::chunks_test {
namespace {

using ::testing::HasSubstr;
using train::testing::rows;
using train::testing::run_all;

constexpr std::int64_t kFeatures = 16;
constexpr int kSteps = 6;

// The same on whichever thread. The first weight is used again by the last layer, as a tied embedding is.
struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(kFeatures, 64))),
        second(register_module("second", torch::nn::Linear(64, 65))),
        third(register_module("third", torch::nn::Linear(65, 64))) {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& tensor : parameters())
      tensor.copy_(0.2 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = third(torch::tanh(second(torch::tanh(first(x)))));
    return torch::matmul(y, first->weight).slice(1, 0, 3);
  }
  torch::nn::Linear first, second, third;
};

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, Net& net) {
  // Two parameter groups, so that a chunk may have parts of both.
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{net.first->weight, net.second->weight, net.third->weight});
  groups.emplace_back(std::vector<torch::Tensor>{net.first->bias, net.second->bias, net.third->bias});
  if (name == "sgd") {
    groups[1].set_options(std::make_unique<torch::optim::SGDOptions>(0.01));
    return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.05).momentum(0.9));
  }
  groups[1].set_options(std::make_unique<torch::optim::AdamWOptions>(0.002));
  return std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(0.01));
}

// All in one bucket, and one bucket a layer, in chunks of so many bytes.
Fusion cut(bool all, std::int64_t bytes) {
  if (all)
    return Fusion(ByName{.buckets = {{"first.weight", "first.bias", "second.weight", "second.bias",
                                      "third.weight", "third.bias"}},
                         .chunk_bytes = {bytes},
                         .source = "all, cut"});
  return Fusion(ByName{.buckets = {{"first.weight", "first.bias"},
                                   {"second.weight", "second.bias"},
                                   {"third.weight", "third.bias"}},
                       .chunk_bytes = {bytes, 0, bytes + 4},
                       .source = "layer, cut"});
}

struct Job {
  Job(const Group& group, const std::string& optimizer, DataParallelOptions options)
      : rank(group.rank()),
        adapted(make_optimizer(optimizer, net)),
        parallel(net, *adapted, group, std::move(options)) {}
  void step() {
    const auto batch = rows(taken++, 2 * rank, 2, kFeatures);
    torch::mse_loss(net.forward(batch.inputs), batch.targets).backward();
    parallel.step();
  }
  [[nodiscard]] std::size_t chunks() const {
    std::size_t count = 0;
    for (BucketId bucket = 0; bucket < parallel.schedule().bucket_count(); ++bucket)
      count += parallel.schedule().updates_of(bucket).size();
    return count;
  }
  int rank;
  Net net;
  std::unique_ptr<torch::optim::Optimizer> adapted;
  DataParallel parallel;
  int taken = 0;
};

using Between = std::function<void(Job&, int step)>;

// Without a profile buckets are cut as they are given.
std::string digest_of(int ranks, const std::string& optimizer, const DataParallelOptions& options,
                      const Between& between = nullptr) {
  std::vector<std::string> digests(static_cast<std::size_t>(ranks));
  run_all(ranks, [&](int rank, Group group) {
    Job job(group, optimizer, options);
    for (int i = 0; i < kSteps; ++i) {
      job.step();
      if (between) between(job, i);
    }
    job.parallel.synchronize();
    digests[static_cast<std::size_t>(rank)] = parameter_digest(job.net);
  });
  for (const std::string& digest : digests) EXPECT_EQ(digest, digests[0]);
  return digests[0];
}

DataParallelOptions eager(Fusion fusion, bool one_copy = false) {
  return {.policy = "dear-eager",
          .buckets = given(std::move(fusion)),
          .one_copy = one_copy,
          .profile_steps = 100};
}

class PiecesOfBuckets : public ::testing::TestWithParam<std::pair<int, const char*>> {};

TEST_P(PiecesOfBuckets, GiveTheSameBits) {
  const auto [ranks, optimizer] = GetParam();
  const std::string whole =
      digest_of(ranks, optimizer, {.policy = "serial", .buckets = given(Fusion::parse("layer"))});
  for (const bool all : {true, false}) {
    for (const std::int64_t bytes : {60, 1000, 4096, 1'000'000}) {
      if (bytes < 64 && ranks > 2) continue;  // some of them empty; many
      SCOPED_TRACE(testing::Message() << bytes << " bytes");
      const auto has_chunks = [bytes = bytes](Job& job, int) {
        EXPECT_EQ(job.chunks() > job.parallel.grouping().size(), bytes <= 4096);
      };
      EXPECT_EQ(digest_of(ranks, optimizer, eager(cut(all, bytes)), has_chunks), whole);
      if (bytes > 60) {
        EXPECT_EQ(digest_of(ranks, optimizer, eager(cut(all, bytes), true)), whole);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, PiecesOfBuckets,
                         ::testing::Values(std::pair{2, "sgd"}, std::pair{3, "adamw"}, std::pair{4, "sgd"}),
                         [](const auto& info) { return "On" + std::to_string(info.param.first); });

TEST(BucketsInPieces, TakeTheOptimisersStateAlong) {
  for (const char* const optimizer : {"sgd", "adamw"}) {
    for (const bool one_copy : {false, true}) {
      SCOPED_TRACE(optimizer);
      const std::string whole =
          digest_of(3, optimizer, {.policy = "serial", .buckets = given(Fusion::parse("layer"))});
      const Between regroup = [](Job& job, int step) {
        const std::array<Fusion, 4> fusions = {cut(true, 1000), cut(false, 400), Fusion::parse("all"),
                                               cut(true, 4096)};
        job.parallel.regroup(fusions.at(static_cast<std::size_t>(step) % fusions.size()));
      };
      EXPECT_EQ(digest_of(3, optimizer, eager(cut(false, 2000), one_copy), regroup), whole);
    }
  }
}

// New memory for parameters between two steps, as torch::load() brings it. Updates ahead of the commit begin
// in the next backward already.
TEST(BucketsInPieces, TakeOverWhatWasReplaced) {
  for (const bool waits : {true, false}) {
    const Between replace = [&](Job& job, int step) {
      if (step % 2 == 0) return;
      if (waits) job.parallel.synchronize();
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& tensor : job.net.parameters()) tensor.set_data(tensor.detach() * 0.5);
    };
    const std::string expected =
        digest_of(2, "adamw", {.policy = "serial", .buckets = given(Fusion::parse("layer"))}, replace);
    EXPECT_EQ(digest_of(2, "adamw", eager(Fusion::parse("layer")), replace), expected);
    EXPECT_EQ(digest_of(2, "adamw", eager(cut(true, 1000)), replace), expected);
  }
}

TEST(BucketsInPieces, RefuseWhatIsReplacedAfterTheFirstUpdate) {
  const auto errors = train::testing::run_each(train::testing::groups_of(2), [](int, Group group) {
    Job job(group, "sgd", eager(cut(false, 400)));
    job.step();
    const auto batch = rows(1, 0, 2, kFeatures);
    torch::mse_loss(job.net.forward(batch.inputs), batch.targets).backward();
    job.net.second->weight.set_data(torch::zeros({65, 64}));
    job.parallel.step();
  });
  // By the one that sees operators, or at last by step(); a rank may hear of the other's end first.
  const std::array told = {train::testing::what_of(errors[0]), train::testing::what_of(errors[1])};
  EXPECT_THAT(told, ::testing::Contains(HasSubstr("between backward and step()")));
  EXPECT_THAT(told, ::testing::Each(::testing::AnyOf(HasSubstr("between backward and step()"),
                                                     HasSubstr("ended with an error"))));
}

TEST(BucketsInPieces, AreLeftWholeByPoliciesThatCutNone) {
  run_all(2, [](int, Group group) {
    Job job(group, "sgd", {.policy = "dear", .buckets = given(cut(true, 1000))});
    job.step();
    EXPECT_EQ(job.chunks(), 1U);
    job.parallel.synchronize();
  });
}

TEST(BucketsInPieces, AreRefusedByTheMillion) {
  run_all(2, [](int, Group group) {
    Job job(group, "sgd", eager(cut(true, 4)));
    EXPECT_THAT([&] { job.step(); },
                ::testing::ThrowsMessage<ConfigError>(HasSubstr("so that there are 1024 at most")));
  });
}

}  // namespace
}  // namespace dear::chunks_test
