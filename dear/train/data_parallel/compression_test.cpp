// Training with gradients that travel compressed.

#include <cmath>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/net.h"
#include "dear/train/data_parallel/testing/ranks.h"

namespace dear::compression_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using train::testing::groups_of;
using train::testing::kFeatures;
using train::testing::make_net;
using train::testing::rows;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

DataParallelOptions options(const std::string& compression, const std::string& policy = "dear",
                            const std::string& fusion = "layer") {
  DataParallelOptions options{.policy = policy, .buckets = given(Fusion::parse(fusion))};
  if (!compression.empty()) options.compression = Compression::parse(compression);
  return options;
}

struct Job {
  Job(Group group, DataParallelOptions with)
      : rank(group.rank()),
        net(make_net()),
        sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)),
        parallel(*net, sgd, group, std::move(with)) {}
  void backward(std::int64_t step) {
    const auto batch = rows(step, 4 * rank, 4, kFeatures);
    torch::mse_loss(net->forward(batch.inputs), batch.targets).backward();
  }
  void train(std::int64_t steps) {
    for (std::int64_t i = 0; i < steps; ++i) {
      backward(taken++);
      parallel.step();
    }
  }
  [[nodiscard]] torch::Tensor weights() {
    parallel.synchronize();
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> all;
    for (const torch::Tensor& tensor : net->parameters()) all.push_back(tensor.reshape({-1}).clone());
    return torch::cat(all);
  }

  int rank;
  torch::nn::Sequential net;
  torch::optim::SGD sgd;
  DataParallel parallel;
  std::int64_t taken = 0;
};

// The weights of each rank after so many steps.
std::vector<torch::Tensor> trained(int ranks, const DataParallelOptions& with, std::int64_t steps = 6) {
  std::vector<torch::Tensor> weights(static_cast<std::size_t>(ranks));
  run_all(ranks, [&](int rank, Group group) {
    Job job(group, with);
    job.train(steps);
    weights[static_cast<std::size_t>(rank)] = job.weights();
  });
  return weights;
}

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return torch::equal(a.view(torch::kInt32), b.view(torch::kInt32));
}

const std::vector<std::string>& schemes() {
  static const std::vector<std::string> kSchemes = {"top-k:0.05,ef",
                                                    "block-top-k:0.05,ef,scope=bucket",
                                                    "random-k:0.1,ef,momentum=0.5,correction",
                                                    "random-k:0.1,own,unbiased,warmup=4",
                                                    "random-block:0.1,ef,momentum=0.5,nesterov,decay=1e-4",
                                                    "random-block:0.1,own,ef,scope=model",
                                                    "fp16,ef",
                                                    "bf16",
                                                    "low-rank:2,ef",
                                                    "sketch",
                                                    "sketch,exact,block=1"};
  return kSchemes;
}

struct Case {
  std::string policy;
  int ranks;
};
class Compressed : public ::testing::TestWithParam<Case> {};

TEST_P(Compressed, EveryRankHasTheSameParametersUnderEveryScheme) {
  const auto& [policy, ranks] = GetParam();
  for (const std::string& scheme : schemes()) {
    SCOPED_TRACE(scheme);
    const std::vector<torch::Tensor> weights = trained(ranks, options(scheme, policy));
    EXPECT_TRUE(weights[0].isfinite().all().item<bool>());
    for (const torch::Tensor& other : weights) EXPECT_TRUE(same_bits(weights[0], other));
  }
}

// Of the policy, of the buckets (where a ratio is of each tensor), and of the run.
TEST_P(Compressed, ResultsDoNotDependOnTheSchedule) {
  const auto& [policy, ranks] = GetParam();
  for (const char* scheme : {"top-k:0.05,ef", "random-k:0.1,ef", "low-rank:2,ef"}) {
    SCOPED_TRACE(scheme);
    const torch::Tensor expected = trained(ranks, options(scheme, "dear"))[0];
    EXPECT_TRUE(same_bits(trained(ranks, options(scheme, policy, "all"))[0], expected));
    EXPECT_TRUE(same_bits(trained(ranks, options(scheme, policy, "64KiB"))[0], expected));
  }
}

TEST_P(Compressed, ARatioOfOneIsDenseTraining) {
  const auto& [policy, ranks] = GetParam();
  const torch::Tensor dense = trained(ranks, options("", policy))[0];
  for (const char* scheme :
       {"random-k:1", "random-block:1", "top-k:1,ef", "block-top-k:1", "random-k:1,own"}) {
    SCOPED_TRACE(scheme);
    const torch::Tensor all = trained(ranks, options(scheme, policy))[0];
    if (ranks != 3) {
      EXPECT_TRUE(same_bits(all, dense));  // a third is rounded otherwise by those that gather
    }
    EXPECT_TRUE(torch::allclose(all, dense, 1e-5, 1e-6));
  }
}

TEST_P(Compressed, ASketchIsDenseTraining) {
  const auto& [policy, ranks] = GetParam();
  const torch::Tensor dense = trained(ranks, options("", policy))[0];
  EXPECT_TRUE(same_bits(trained(ranks, options("sketch,most-density=1", policy))[0], dense));
  const torch::Tensor exact = trained(ranks, options("sketch,most-density=1,exact", policy))[0];
  if (ranks <= 2) {
    EXPECT_TRUE(same_bits(exact, dense));  // sums of two are rounded once, too
  }
  EXPECT_TRUE(torch::allclose(exact, dense, 1e-5, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Compressed,
                         ::testing::Values(Case{"dear", 1}, Case{"dear", 2}, Case{"dear", 3},
                                           Case{"dear-replicated", 2}, Case{"wfbp", 2}, Case{"serial", 4}),
                         [](const auto& info) {
                           std::string name = info.param.policy + "On" + std::to_string(info.param.ranks);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A model whose gradient is what a test says.
struct Chosen : torch::nn::Module {
  explicit Chosen(std::int64_t elements) { weight = register_parameter("weight", torch::zeros({elements})); }
  torch::Tensor weight;
};

torch::Tensor gradient_of(std::int64_t step, int rank, std::int64_t elements) {
  return torch::sin(torch::arange(elements, torch::kFloat32) * (0.1F + 0.01F * static_cast<float>(step)) +
                    static_cast<float>(rank));
}

// sum of lr mean(c) + lr mean(e) = sum of lr mean(g): what does not travel is kept.
TEST(Compression, ErrorFeedbackLosesNothing) {
  constexpr std::int64_t kElements = 3000;
  constexpr int kRanks = 2, kSteps = 50;
  for (const char* scheme : {"top-k:0.01,ef", "random-k:0.05,ef", "random-block:0.05,ef",
                             "block-top-k:0.02,ef", "random-k:0.05,own,ef"}) {
    SCOPED_TRACE(scheme);
    torch::Tensor gradients = torch::zeros({kElements}, torch::kFloat64), residuals = gradients.clone(),
                  moved;
    std::mutex mutex;
    run_all(kRanks, [&](int rank, Group group) {
      Chosen model(kElements);
      torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.5));
      DataParallel parallel(model, sgd, group, options(scheme));
      torch::Tensor mine = torch::zeros({kElements}, torch::kFloat64);
      for (int step = 0; step < kSteps; ++step) {
        const torch::Tensor gradient = gradient_of(step, rank, kElements);
        mine += gradient.to(torch::kFloat64);
        (model.weight * gradient).sum().backward();
        parallel.step();
      }
      const CompressionStates states = parallel.compression_states();
      const std::lock_guard lock(mutex);
      gradients += mine / kRanks;
      residuals += states.parameters.at(0).residual.to(torch::kFloat64) / kRanks;
      const torch::NoGradGuard no_grad;
      if (rank == 0) moved = -model.weight.to(torch::kFloat64);
    });
    const double scale = (0.5 * gradients).norm().item<double>();
    EXPECT_LT((moved + 0.5 * residuals - 0.5 * gradients).norm().item<double>(), 1e-6 * scale);
    EXPECT_GT(residuals.norm().item<double>(), 0);
  }
}

// An embedding of which each step touches a few rows.
struct Words : torch::nn::Module {
  Words()
      : embedding(register_module("embedding", torch::nn::Embedding(4000, 50))),
        top(register_module("top", torch::nn::Linear(50, 1))) {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& tensor : parameters())
      tensor.copy_(0.3 * torch::sin(torch::arange(tensor.numel(), torch::kFloat32)).view_as(tensor));
  }
  torch::nn::Embedding embedding;
  torch::nn::Linear top;
};

// Bits of dense training, under an optimiser that makes full steps of the least noise: rows that no step used
// stay as they were. Of 50 elements, which no block divides.
TEST(Compression, AnEmbeddingTravelsAsASketchAndLearnsAsDenseOnes) {
  for (const char* scheme : {"sketch", "sketch,block=16", "sketch,index=bloom,block=16", "sketch,exact"}) {
    SCOPED_TRACE(scheme);
    const auto train = [](const Group& group, const std::string& with, CompressionReport* report) {
      const int rank = group.rank();
      Words words;
      torch::optim::Adam adam(words.parameters(), torch::optim::AdamOptions(0.01));
      DataParallel parallel(words, adam, group, options(with));
      for (int step = 0; step < 60; ++step) {
        const torch::Tensor which = torch::remainder(torch::arange(16) * (37 + step) + 1000 * rank, 3000);
        const torch::Tensor loss =
            torch::mse_loss(words.top->forward(words.embedding->forward(which)).squeeze(1),
                            torch::sin(which.to(torch::kFloat32)));
        (step % 20 == 10 ? 1e6 * loss : loss).backward();  // a spike
        parallel.step();
      }
      parallel.synchronize();
      if (report != nullptr) *report = parallel.compression_report();
      return words.embedding->weight.detach().clone();
    };
    run_all(2, [&](int rank, const Group& group) {
      CompressionReport report;
      const torch::Tensor dense = train(group, "", nullptr), sketched = train(group, scheme, &report);
      EXPECT_TRUE(same_bits(sketched, dense));
      if (rank != 0) return;
      EXPECT_TRUE(same_bits(sketched.slice(0, 3000), Words().embedding->weight.detach().slice(0, 3000)));
      EXPECT_LT(report.bytes, report.dense_bytes / 4);
      EXPECT_EQ(report.not_finite, 0);
      EXPECT_LE(report.dense_exchanges, 4);  // of what fixed point cannot hold
    });
  }
}

TEST(Compression, RegroupCarriesWhatIsRemembered) {
  for (const char* scheme :
       {"top-k:0.05,ef", "random-k:0.1,ef,momentum=0.5,correction", "low-rank:2,ef", "bf16,ef"}) {
    SCOPED_TRACE(scheme);
    const torch::Tensor expected = trained(2, options(scheme), 8)[0];
    run_all(2, [&](int, Group group) {
      Job job(group, options(scheme));
      job.train(3);
      job.parallel.regroup(Fusion::parse("all"));
      job.train(2);
      job.parallel.regroup(Fusion::parse("64KiB"));
      job.train(3);
      EXPECT_TRUE(same_bits(job.weights(), expected));
    });
  }
}

TEST(Compression, ASavedStateGoesOnBitForBit) {
  for (const char* scheme : {"top-k:0.05,ef,momentum=0.5,warmup=6", "random-block:0.1,ef", "low-rank:2,ef"}) {
    SCOPED_TRACE(scheme);
    const torch::Tensor expected = trained(2, options(scheme), 8)[0];
    run_all(2, [&](int, Group group) {
      Job saved(group, options(scheme));
      saved.train(5);
      saved.parallel.synchronize();  // the next one uses the same group
      Job loaded(group, options(scheme));
      loaded.train(1);
      {
        const torch::NoGradGuard no_grad;
        saved.parallel.synchronize();
        const std::vector<torch::Tensor> from = saved.net->parameters(), to = loaded.net->parameters();
        loaded.parallel.synchronize();
        for (std::size_t i = 0; i < from.size(); ++i) to[i].set_data(from[i].detach().clone());
        std::vector<DataParallel::StateOfParameter> optimizer = saved.parallel.optimizer_state();
        CompressionStates states = saved.parallel.compression_states();
        const auto of_loaded = [&](torch::Tensor& parameter) {
          for (std::size_t i = 0; i < from.size(); ++i)
            if (parameter.is_same(from[i])) return parameter = to[i], void();
        };
        for (auto& one : optimizer) of_loaded(one.parameter);
        for (auto& one : states.parameters) of_loaded(one.parameter);
        loaded.parallel.load_optimizer_state(optimizer);
        loaded.parallel.load_compression_states(states);
      }
      loaded.taken = 5;
      loaded.train(3);
      EXPECT_TRUE(same_bits(loaded.weights(), expected));
    });
  }
}

TEST(Compression, AStepGivenUpIsForgotten) {
  for (const char* scheme : {"top-k:0.05,ef,momentum=0.5", "random-k:0.1,ef", "fp16,ef"}) {
    SCOPED_TRACE(scheme);
    const torch::Tensor expected = trained(2, options(scheme), 6)[0];
    run_all(2, [&](int, Group group) {
      Job job(group, options(scheme));
      job.train(3);
      job.backward(77);
      job.parallel.discard_step();
      job.train(3);
      EXPECT_TRUE(same_bits(job.weights(), expected));
    });
  }
}

// 25,600 elements in each of four weights, 2,560 in the first, and 480 in the last, which travels dense as
// the biases do.
TEST(Compression, TheReportCountsBytesByFormula) {
  constexpr double kDense = 4 * (5 * 160 + 480 + 16);  // bytes of what travels dense
  run_all(2, [&](int, Group group) {
    const auto sent = [&](const char* scheme) {
      Job job(group, options(scheme));
      job.train(2);
      job.parallel.synchronize();
      const CompressionReport report = job.parallel.compression_report();
      EXPECT_EQ(report.steps, 2);
      return report.bytes / 2;
    };
    const double kept = 4 * 256 + 25;
    EXPECT_NEAR(sent("random-k:0.01"), 4 * kept + kDense, 4 * 5 * 32 + 512);
    EXPECT_NEAR(sent("top-k:0.01"), 8 * kept + kDense, 5 * 64 + 512);
    EXPECT_NEAR(sent("bf16"), 2 * (4 * 25600 + 2560) + kDense, 512);
  });
}

TEST(Compression, RefusesWhatCannotBe) {
  const auto refusal = [](const DataParallelOptions& with) {
    std::vector<std::string> messages;
    for (const auto& error : run_each(groups_of(2), [&](int, Group group) { const Job job(group, with); }))
      messages.push_back(what_of(error));
    return messages;
  };
  EXPECT_THAT(refusal(options("top-k:0.01", "dear-eager")),
              Each(AllOf(HasSubstr("dear-eager"), HasSubstr("wfbp"))));
  DataParallelOptions one_copy = options("top-k:0.01");
  one_copy.one_copy = true;
  EXPECT_THAT(refusal(one_copy), Each(HasSubstr("one_copy")));
  DataParallelOptions wrong = options("top-k:0.01");
  wrong.compression->ratio = 2;
  EXPECT_THAT(refusal(wrong), Each(HasSubstr("ratio")));
}

TEST(Compression, RanksWithDifferentOnesAreAMismatch) {
  const auto errors = run_each(groups_of(2), [](int rank, Group group) {
    const Job job(group, options(rank == 0 ? "top-k:0.01,ef" : "top-k:0.02,ef"));
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THROW(std::rethrow_exception(error), MismatchError);
    EXPECT_THAT(what_of(error), HasSubstr("compression"));
  }
}

TEST(Compression, StatesNeedACompressionAndFitTheirs) {
  run_all(2, [](int, Group group) {
    Job dense(group, options(""));
    dense.train(1);
    dense.parallel.synchronize();  // the next one uses the same group
    EXPECT_THROW((void)dense.parallel.compression_states(), ScheduleError);
    Job job(group, options("top-k:0.05,ef"));
    job.train(1);
    CompressionStates states = job.parallel.compression_states();
    ASSERT_FALSE(states.parameters.empty());
    states.parameters[0].residual = torch::zeros({3});
    EXPECT_THROW(job.parallel.load_compression_states(states), ConfigError);
  });
}

}  // namespace
}  // namespace dear::compression_test
