// verify_every finds a bit that one rank has and the others have not.

#include "dear/train/data_parallel/verifier.h"

#include <bit>
#include <cstring>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/shm/testing/shm_threads.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/join.h"

namespace dear::verifier_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(DigestOfBits, DiffersWithEachElementAndIsOneForOneTensor) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kByte}) {
    const torch::Tensor tensor = torch::arange(1, 31).view({5, 6}).to(type);
    const std::uint64_t digest = train::digest_of_bits(tensor);
    EXPECT_EQ(train::digest_of_bits(tensor.t().contiguous().t()), digest) << "strides are not values";
    for (std::int64_t i = 0; i < 30; ++i) {
      torch::Tensor other = tensor.clone();
      auto* const byte = static_cast<std::uint8_t*>(other.data_ptr()) + i * tensor.element_size();
      *byte ^= 1;
      EXPECT_NE(train::digest_of_bits(other), digest) << i;
    }
  }
  // By a pencil: 3 * 1 + (-2) * 3 + 5 * 5.
  EXPECT_EQ(train::digest_of_bits(torch::tensor({3, -2, 5}, at::kInt)), 22U);
}

struct Case {
  std::string policy;
  int ranks = 2;
  bool one_copy = false;
};

// Steps of a small net on threads; `spoil` may change the parameters of a rank after a step.
template <typename Spoil>
std::vector<std::string> train(const Case& which, int steps, const Spoil& spoil, int every = 2) {
  auto backends = backends::testing::make_shm_threads(which.ranks);
  return os::testing::run_on_threads(which.ranks, [&](int rank) {
    torch::manual_seed(3);
    torch::nn::Sequential net(torch::nn::Linear(12, 10), torch::nn::Linear(10, 7), torch::nn::Linear(7, 4));
    torch::optim::AdamW adamw(net->parameters(), 1e-2);
    DataParallel dp(*net, adamw, Group(std::move(backends[static_cast<std::size_t>(rank)]), {}),
                    {.policy = which.policy,
                     .buckets = given(Fusion::parse("200B")),
                     .one_copy = which.one_copy,
                     .verify_every = every});
    for (int step = 1; step <= steps; ++step) {
      torch::manual_seed(100 * step + rank);
      net->forward(torch::randn({3, 12})).square().mean().backward();
      dp.step();
      dp.synchronize();
      spoil(step, rank, *net);
    }
  });
}

const auto kNothing = [](int, int, torch::nn::SequentialImpl&) {};

TEST(Verifier, HasNoObjectionToWhatIsAlike) {
  for (const char* policy : {"dear", "dear-eager", "dear-replicated", "wfbp", "serial"})
    for (const int ranks : {2, 3})
      EXPECT_THAT(train({.policy = policy, .ranks = ranks}, 9, kNothing), Each("ok")) << policy;
  EXPECT_THAT(train({.policy = "dear", .ranks = 2, .one_copy = true}, 9, kNothing), Each("ok"));
  EXPECT_THAT(train({.policy = "dear", .ranks = 1}, 3, kNothing), Each("ok"));
}

// The last bit of the last element of the last tensor, after a step that nobody looks at. Every rank keeps
// whole parameters of its own there, so the difference stays.
TEST(Verifier, NamesTheTensorAndTheRankThatIsAlone) {
  for (const int ranks : {3, 4}) {
    const auto reports = train({.policy = "wfbp", .ranks = ranks}, 5, [&](int step, int rank, auto& net) {
      if (step != 3 || rank != 1) return;
      const torch::NoGradGuard no_grad;
      torch::Tensor last = net.parameters().back();
      auto* const bits = reinterpret_cast<std::uint32_t*>(last.template data_ptr<float>() + last.numel() - 1);
      *bits ^= 1;
    });
    EXPECT_THAT(reports,
                Each(AllOf(HasSubstr("MismatchError"), HasSubstr("after step 4 "), HasSubstr("'2.bias'"),
                           HasSubstr(fmt::format("rank 1 has another value than the other {}", ranks - 1)))));
  }
}

TEST(Verifier, SaysThatTwoRanksDiffer) {
  const auto reports = train({.policy = "serial", .ranks = 2}, 5, [&](int step, int rank, auto& net) {
    const torch::NoGradGuard no_grad;
    if (step == 1 && rank == 0) net.parameters().front().view(-1)[0] += 1;
  });
  EXPECT_THAT(reports,
              Each(AllOf(HasSubstr("after step 2 "), HasSubstr("'0.weight'"), HasSubstr("ranks 0 and 1 "))));
}

TEST(Verifier, IsRefusedInAJoinAndBelowZero) {
  EXPECT_THAT(train({.policy = "dear", .ranks = 2}, 1, kNothing, -1), Each(HasSubstr("verify_every is -1")));
  auto backends = backends::testing::make_shm_threads(2);
  EXPECT_THAT(os::testing::run_on_threads(
                  2,
                  [&](int rank) {
                    torch::nn::Linear net(3, 2);
                    torch::optim::AdamW adamw(net->parameters(), 1e-2);
                    DataParallel dp(*net, adamw,
                                    Group(std::move(backends[static_cast<std::size_t>(rank)]), {}),
                                    {.buckets = given(), .verify_every = 5});
                    const Join join(dp);
                  }),
              Each(AllOf(HasSubstr("ConfigError"), HasSubstr("verify_every"))));
}

}  // namespace
}  // namespace dear::verifier_test
