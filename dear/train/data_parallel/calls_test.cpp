// Calls of DataParallel that differ between ranks: never a hang, and one sentence that says what to do.

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::calls_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

enum class Buffers { none, statistics };

struct Job {
  explicit Job(const Group& group, Buffers buffers = Buffers::statistics, const std::string& policy = "dear")
      : rank(group.rank()),
        net(torch::nn::Linear(4, 8), torch::nn::Linear(8, 8)),
        sgd((buffers == Buffers::none ? net : with_statistics(net))->parameters(), 0.1),
        parallel(*net, sgd, group, {.policy = policy, .buckets = given(Fusion::parse("layer"))}) {}
  static torch::nn::Sequential with_statistics(torch::nn::Sequential net) {
    net->push_back(torch::nn::BatchNorm1d(8));
    return net;
  }
  void backward() { net->forward(torch::ones({4, 4}) * (rank + 1)).square().sum().backward(); }
  void step() {
    backward();
    parallel.step();
  }
  int rank;
  torch::nn::Sequential net;
  torch::optim::SGD sgd;
  DataParallel parallel;
};

// After two steps each rank makes other calls; all of them must hear of it.
void expect_mismatch(const std::vector<std::function<void(Job&)>>& calls, const char* noun, int steps = 2) {
  SCOPED_TRACE(noun);
  const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
    Job job(group);
    for (int i = 0; i < steps; ++i) job.step();
    calls.at(static_cast<std::size_t>(rank))(job);
    job.step();
    job.parallel.synchronize();
  });
  for (const std::exception_ptr& error : errors) {
    EXPECT_THAT(what_of(error),
                AllOf(HasSubstr("rank 1"), HasSubstr(noun), HasSubstr("the same calls of DataParallel")));
    ASSERT_TRUE(error);
    EXPECT_THROW(std::rethrow_exception(error), MismatchError);
  }
}

void nothing(Job&) {}
void synchronize(Job& job) { job.parallel.synchronize(); }
void regroup(Job& job) { job.parallel.regroup(Fusion::parse("all")); }

TEST(Calls, SynchronizeInTheMiddleOfAnIterationSendsNothing) {
  run_all(2, [](int, Group group) {
    Job job(group);
    for (int i = 0; i < 3; ++i) {
      job.backward();
      job.parallel.synchronize();
      job.parallel.step();
    }
    job.parallel.synchronize();
    const torch::Tensor mean = job.net->named_buffers()["2.running_mean"];
    EXPECT_NE(mean.abs().sum().item<float>(), 0);
  });
}

TEST(Calls, SynchronizeInDifferentStatesIsAMismatch) {
  const auto between = [](Job& job) {
    job.backward();
    job.parallel.synchronize();
    job.parallel.step();
  };
  expect_mismatch({synchronize, between}, "");
  expect_mismatch({between, synchronize}, "");
  expect_mismatch({synchronize, nothing}, "");
  expect_mismatch({synchronize, nothing}, "first step()", 0);
}

// Where there is nothing to send, no rank has to call it.
TEST(Calls, SynchronizeWithoutBuffersIsEachRanksOwn) {
  run_all(2, [](int rank, Group group) {
    Job job(group, Buffers::none);
    if (rank == 0) job.parallel.synchronize();
    for (int i = 0; i < 3; ++i) {
      job.backward();
      if (rank == 1) job.parallel.synchronize();
      job.parallel.step();
      if (rank == 0) job.parallel.synchronize();
    }
    job.parallel.synchronize();
  });
}

TEST(Calls, RegroupThatOthersDoNotMakeIsAMismatch) {
  expect_mismatch({regroup, synchronize}, "regroup()");
  expect_mismatch({regroup, nothing}, "");
  expect_mismatch({regroup, nothing}, "first step()", 0);
  expect_mismatch({regroup,
                   [](Job& job) {
                     job.backward();
                     // A ConfigError on this rank alone, or the mismatch, where that is known by then.
                     EXPECT_THROW(regroup(job), Error);
                     job.parallel.step();
                   }},
                  "");
}

TEST(Calls, AStepThatIsGivenUpByOneRankIsAMismatch) {
  const auto discard = [](Job& job) {
    job.backward();
    job.parallel.discard_step();
  };
  expect_mismatch({discard, nothing}, "");
  expect_mismatch({discard, nothing}, "first step()", 0);
}

// With a gradient or without: what is sent would be applied.
TEST(Calls, AStepIsNotGivenUpWhereUpdatesRunAhead) {
  run_all(2, [](int, Group group) {
    Job job(group, Buffers::none, "dear-eager");
    for (int i = 0; i < 3; ++i) job.step();
    job.parallel.synchronize();
    EXPECT_THROW(job.parallel.discard_step(), ConfigError);
  });
}

}  // namespace
}  // namespace dear::calls_test
