// Parameters that are frozen, unfrozen or added to the optimiser while a model trains, and models that
// change.

#include <array>
#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/testing/counting.h"
#include "dear/train/data_parallel/testing/one_process.h"

namespace dear::rebuild_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::adamw_options;
using train::testing::Counting;
using train::testing::expect_as_one_process;
using train::testing::fill;
using train::testing::groups_of;
using train::testing::Job;
using train::testing::message_of;
using train::testing::Net;
using train::testing::Program;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::Setting;
using train::testing::what_of;

using Tensors = std::vector<torch::Tensor>;

void require_grad(const torch::nn::Linear& layer, bool trains) {
  for (const torch::Tensor& parameter : layer->parameters()) parameter.requires_grad_(trains);
}

Program between_steps(const std::function<void(Job&, int step)>& change, int steps = 7) {
  return [change, steps](Job& job) {
    for (int step = 0; step < steps; ++step) {
      change(job, step);
      job.train(step);
    }
  };
}

void rethrow(const std::exception_ptr& error) {
  if (error) std::rethrow_exception(error);
}

// ---- frozen and unfrozen

TEST(Freezing, OfALayerThatComesBackWithItsState) {
  expect_as_one_process(between_steps([](Job& job, int step) {
    if (step == 2) require_grad(job.net->second, false);
    if (step == 4) require_grad(job.net->second, true);
  }));
}

TEST(Freezing, OfAllButTheHeadAndUnfrozenFromTheTop) {
  const Setting setting{.held = [](Net& net) {
    require_grad(net->first, false);
    require_grad(net->second, false);
    return net->parameters();
  }};
  expect_as_one_process(between_steps([](Job& job, int step) {
                          if (step == 2) require_grad(job.net->second, true);
                          if (step == 4) require_grad(job.net->first, true);
                        }),
                        setting);
}

TEST(Freezing, AfterBackwardEndsWithTheStep) {
  expect_as_one_process([](Job& job) {
    for (int step = 0; step < 6; ++step) {
      job.backward(step);
      if (step == 2) require_grad(job.net->second, false);
      job.step();
    }
  });
}

TEST(Freezing, WithMastersAndWrites) {
  const auto change = [](Job& job, int step) {
    const torch::NoGradGuard no_grad;
    if (step == 3) fill(job.net->second->weight, 5);
  };
  Setting setting{.ranks = {2}, .policies = {"dear", "wfbp"}, .type = torch::kBFloat16};
  expect_as_one_process(between_steps(change), setting);
  // One process keeps gradients of zero for what is frozen here, so that only writes are compared above; here
  // that a master comes back as it was.
  run_all(2, [](int rank, Group group) {
    Net net;
    net->to(torch::kBFloat16);
    torch::optim::AdamW adamw(net->parameters(), adamw_options());
    DataParallel dp(*net, adamw, std::move(group), {.buckets = given(), .fp32_masters = true});
    Job job{net, adamw, &dp, rank, 2, torch::kBFloat16};
    const auto master_of = [&](const torch::Tensor& parameter) {
      for (const auto& [tensor, state] : dp.optimizer_state())
        if (tensor.is_same(parameter)) return state->vectors.at("master_parameter").clone();
      return torch::Tensor();
    };
    for (int step = 0; step < 3; ++step) job.train(step);
    const torch::Tensor before = master_of(net->second->weight);
    require_grad(net->second, false);
    job.train(3);
    EXPECT_TRUE(torch::equal(master_of(net->second->weight), before));
    require_grad(net->second, true);
    dp.rebuild(*net);
    EXPECT_TRUE(torch::equal(master_of(net->second->weight), before));
  });
}

TEST(Freezing, WithAccumulationAndOneCopyAndChosenBuckets) {
  const Program accumulating = [](Job& job) {
    for (int step = 0; step < 6; ++step) {
      if (step == 2) require_grad(job.net->first, false);
      if (step == 4) require_grad(job.net->first, true);
      if (job.dp != nullptr) {
        job.net->forward(torch::ones({1, 16})).sum().backward();
        job.train(step);
        continue;
      }
      job.backward(step);
      Tensors gradients;
      for (const torch::Tensor& parameter : job.net->parameters()) gradients.push_back(parameter.grad());
      for (torch::Tensor& parameter : job.net->parameters()) parameter.mutable_grad().reset();
      job.net->forward(torch::ones({1, 16})).sum().backward();
      for (std::size_t i = 0; i < gradients.size(); ++i)
        if (gradients[i].defined()) job.net->parameters()[i].mutable_grad() += gradients[i];
      job.step();
    }
  };
  const Program changing = between_steps(
      [](Job& job, int step) {
        if (step == 2 || step == 5) require_grad(job.net->first, false);
        if (step == 4) require_grad(job.net->first, true);
      },
      9);
  run_all(2, [&](int rank, Group group) {  // passes are added on each rank first: not to the bit
    Net net, plain;
    torch::optim::AdamW adamw(net->parameters(), adamw_options()),
        theirs(plain->parameters(), adamw_options());
    DataParallel dp(*net, adamw, std::move(group), {.buckets = given(Fusion::parse("layer"))});
    Job mine{net, adamw, &dp, rank, 2}, one{plain, theirs, nullptr, 0, 2};
    accumulating(mine);
    accumulating(one);
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      EXPECT_TRUE(torch::allclose(net->parameters()[i], plain->parameters()[i], 1e-4, 1e-5)) << i;
  });
  const DataParallelOptions one_copy{.buckets = given(Fusion::parse("2KiB")), .one_copy = true};
  expect_as_one_process(changing, {.ranks = {2}, .policies = {"dear", "dear-eager"}, .options = one_copy});
  const DataParallelOptions planning{.buckets = planned(Fusion::parse("2KiB")), .profile_steps = 1};
  expect_as_one_process(changing,
                        {.ranks = {2}, .policies = {"wfbp", "dear", "dear-eager"}, .options = planning});
}

TEST(Freezing, OfMostOfAModelSendsLess) {
  std::array<std::atomic<std::int64_t>, 2> bytes{};
  std::vector<Group> groups;
  for (auto& backend : backends::testing::make_shm_threads(2)) {
    const auto rank = static_cast<std::size_t>(backend->rank());
    groups.emplace_back(std::make_unique<Counting>(std::move(backend), bytes[rank]), Group::Options{});
  }
  const auto errors = run_each(std::move(groups), [&](int rank, Group group) {
    Net net;
    torch::optim::AdamW adamw(net->parameters(), adamw_options());
    DataParallel dp(*net, adamw, std::move(group), {.buckets = given(Fusion::parse("layer"))});
    Job job{net, adamw, &dp, rank, 2};
    const auto bytes_of_a_step = [&](int step) {
      dp.synchronize();
      const std::int64_t before = bytes[static_cast<std::size_t>(rank)];
      job.train(step);
      dp.synchronize();
      return bytes[static_cast<std::size_t>(rank)] - before;
    };
    job.train(0);
    const std::int64_t whole = bytes_of_a_step(1);
    EXPECT_GT(whole, 2 * 4 * (16 * 40 + 40 + 40 * 24 + 24 + 24 * 3 + 3));
    require_grad(net->first, false);
    require_grad(net->second, false);
    job.train(2);
    const std::int64_t of_head = bytes_of_a_step(3);
    EXPECT_GE(of_head, 2 * 4 * (24 * 3 + 3));
    EXPECT_LT(of_head, whole / 15);
    EXPECT_EQ(dp.statistics().parameter_bytes, of_head / 2);
    EXPECT_FALSE(net->first->weight.grad().defined());
  });
  for (const auto& error : errors) EXPECT_EQ(what_of(error), "");
}

TEST(Freezing, OnOneRankAloneIsAMismatchOnAll) {
  for (const std::string policy : {"serial", "dear"}) {
    const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
      Net net;
      torch::optim::AdamW adamw(net->parameters(), adamw_options());
      DataParallel dp(*net, adamw, std::move(group), {.policy = policy, .buckets = given()});
      Job job{net, adamw, &dp, rank, 2};
      for (int step = 0; step < 4; ++step) {
        if (step == 2 && rank == 1) require_grad(net->second, false);
        job.train(step);
      }
      dp.synchronize();
    });
    for (const auto& error : errors)
      EXPECT_NE(message_of<MismatchError>([&] { rethrow(error); }), "no such error") << policy;
  }
}

TEST(Freezing, OfOtherParametersOnAnotherRankNamesTheFirst) {
  const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
    Net net;
    torch::optim::AdamW adamw(net->parameters(), adamw_options());
    DataParallel dp(*net, adamw, std::move(group), {.buckets = given()});
    Job job{net, adamw, &dp, rank, 2};
    job.train(0);
    require_grad(rank == 0 ? net->second : net->first, false);
    job.train(1);
  });
  for (const auto& error : errors)
    EXPECT_THAT(message_of<MismatchError>([&] { rethrow(error); }),
                AllOf(HasSubstr("rank 1"), HasSubstr("first.weight")));
}

TEST(Freezing, IsUndoneInTheMidstOfAStepWithAnError) {
  const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
    Net net;
    require_grad(net->first, false);
    torch::optim::AdamW adamw(net->parameters(), adamw_options());
    DataParallel dp(*net, adamw, std::move(group), {.buckets = given()});
    Job job{net, adamw, &dp, rank, 2};
    job.train(0);
    {
      const auto guard = dp.no_sync();
      job.backward(1);
    }
    require_grad(net->first, true);
    job.train(1);
  });
  for (const auto& error : errors)
    EXPECT_THAT(what_of(error), HasSubstr("unfrozen"));  // each finds it, or hears of it from the other
}

TEST(Freezing, KeepsStateThatIsSavedAndLoaded) {
  run_all(2, [](int rank, Group group) {
    Net net;
    torch::optim::AdamW adamw(net->parameters(), adamw_options());
    DataParallel dp(*net, adamw, std::move(group), {.buckets = given()});
    Job job{net, adamw, &dp, rank, 2};
    for (int step = 0; step < 3; ++step) job.train(step);
    require_grad(net->first, false);
    job.train(3);
    std::vector<DataParallel::StateOfParameter> states = dp.optimizer_state();
    EXPECT_EQ(states.size(), 6U);
    for (const auto& [parameter, state] : states)
      EXPECT_EQ(state->vectors.at("exp_avg").sizes(), parameter.sizes());
    for (auto& [parameter, state] : states) state->vectors.at("exp_avg").fill_(0.5);
    dp.load_optimizer_state(states);
    require_grad(net->first, true);
    dp.rebuild(*net);
    for (const auto& [parameter, state] : dp.optimizer_state())
      EXPECT_TRUE((state->vectors.at("exp_avg") == 0.5).all().item<bool>());
  });
}

// ---- groups and layers that come later

void add_group(Job& job, const Tensors& parameters) {
  auto options = adamw_options();
  options.lr(2e-3);
  torch::optim::OptimizerParamGroup group(parameters, std::make_unique<torch::optim::AdamWOptions>(options));
  job.optimizer.add_param_group(group);
}

void add_layer(Job& job) {
  job.net->extra = torch::nn::Linear(24, 24);
  for (const torch::Tensor& tensor : job.net->extra->parameters())
    fill(tensor, job.rank);  // becomes rank 0's
  job.net->register_module("extra", job.net->extra);
}

TEST(Groups, ThatAreAddedLaterAreTrained) {
  const Setting setting{.held = [](Net& net) {
    require_grad(net->first, false);
    Tensors held = net->second->parameters();
    for (const torch::Tensor& tensor : net->head->parameters()) held.push_back(tensor);
    return held;
  }};
  expect_as_one_process(between_steps([](Job& job, int step) {
                          if (step == 2) {  // of the model's
                            require_grad(job.net->first, true);
                            add_group(job, job.net->first->parameters());
                          }
                          if (step == 4) {  // new ones, the same on every rank
                            add_layer(job);
                            for (const torch::Tensor& tensor : job.net->extra->parameters()) fill(tensor);
                            add_group(job, job.net->extra->parameters());
                          }
                        }),
                        setting);
}

TEST(Groups, OfOtherValuesOnAnotherRankAreAMismatch) {
  const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
    Net net;
    torch::optim::AdamW adamw(net->parameters(), adamw_options());
    DataParallel dp(*net, adamw, std::move(group), {.buckets = given()});
    Job job{net, adamw, &dp, rank, 2};
    job.train(0);
    add_layer(job);
    add_group(job, net->extra->parameters());
    job.train(1);
  });
  for (const auto& error : errors)
    EXPECT_THAT(message_of<MismatchError>([&] { rethrow(error); }), HasSubstr("rebuild()"));
}

void rebuild(Job& job) {
  if (job.dp != nullptr) job.dp->rebuild(*job.net);
}

TEST(Rebuild, AfterALayerCameAndWent) {
  expect_as_one_process(between_steps([](Job& job, int step) {
    if (step == 2) {
      add_layer(job);
      add_group(job, job.net->extra->parameters());
      rebuild(job);
    }
    if (step == 5) {
      job.net->unregister_module("extra");
      job.net->extra = nullptr;
      rebuild(job);
    }
  }));
}

TEST(Rebuild, AfterTheHeadWasReplaced) {
  expect_as_one_process(between_steps([](Job& job, int step) {
    if (step != 3) return;
    job.net->head = job.net->replace_module("head", torch::nn::Linear(24, 20));
    for (const torch::Tensor& tensor : job.net->head->parameters()) fill(tensor, job.rank);
    add_group(job, job.net->head->parameters());
    rebuild(job);
    if (job.dp == nullptr) return;
    EXPECT_EQ(job.dp->optimizer_state().size(), 6U);
  }));
}

TEST(Rebuild, WithAdaptersOnAFrozenBase) {
  expect_as_one_process(between_steps([](Job& job, int step) {
    if (step != 2) return;
    for (const torch::Tensor& parameter : job.net->parameters()) parameter.requires_grad_(false);
    add_layer(job);
    add_group(job, job.net->extra->parameters());
    rebuild(job);
    if (job.ranks > 1 && job.dp != nullptr) {
      EXPECT_LT(job.dp->statistics().parameter_bytes, 4 * (24 * 24 + 24) + 256);
    }
  }));
}

TEST(Rebuild, MakesValuesThoseOfRank0) {
  expect_as_one_process(between_steps([](Job& job, int step) {
                          if (step != 3) return;
                          fill(job.net->second->weight, job.rank);
                          rebuild(job);
                        }),
                        {.ranks = {2}});
}

TEST(Rebuild, BeforeTheFirstStepAndWithTunedBuckets) {
  const Program program = between_steps([](Job& job, int step) {
    if (step != 0 && step != 4) return;
    if (step == 4) require_grad(job.net->second, false);
    if (step == 0) {
      add_layer(job);
      add_group(job, job.net->extra->parameters());
    }
    rebuild(job);
  });
  expect_as_one_process(program, {.ranks = {1, 2}});
}

TEST(Rebuild, OnOneRankAloneIsAMismatch) {
  const auto errors = run_each(groups_of(2), [&](int rank, Group group) {
    Net net;
    torch::optim::AdamW adamw(net->parameters(), adamw_options());
    DataParallel dp(*net, adamw, std::move(group), {.buckets = given()});
    Job job{net, adamw, &dp, rank, 2};
    job.train(0);
    if (rank == 1) dp.rebuild(*net);
    job.train(1);
    dp.synchronize();
  });
  for (const auto& error : errors)
    EXPECT_NE(message_of<MismatchError>([&] { rethrow(error); }), "no such error");
}

TEST(Rebuild, IsAskedForWhenAParameterWasReplaced) {
  for (const int ranks : {1, 2}) {
    const auto errors = run_each(groups_of(ranks), [&](int rank, Group group) {
      Net net;
      torch::optim::AdamW adamw(net->parameters(), adamw_options());
      DataParallel dp(*net, adamw, std::move(group), {.buckets = given()});
      Job job{net, adamw, &dp, rank, ranks};
      job.train(0);
      net->head = net->replace_module("head", torch::nn::Linear(24, 3));
      job.train(1);
    });
    for (const auto& error : errors)
      EXPECT_THAT(what_of(error), AllOf(HasSubstr("head.weight"), HasSubstr("rebuild()")));
  }
}

TEST(Rebuild, RefusesWhatTheOptimiserDoesNotHoldAndGoesOn) {
  run_all(2, [](int rank, Group group) {
    Net net;
    torch::optim::AdamW adamw(net->parameters(), adamw_options());
    DataParallel dp(*net, adamw, std::move(group), {.buckets = given()});
    Job job{net, adamw, &dp, rank, 2};
    job.train(0);
    add_layer(job);
    EXPECT_THAT(message_of<ConfigError>([&] { dp.rebuild(*net); }), HasSubstr("extra.weight"));
    add_group(job, net->extra->parameters());
    dp.rebuild(*net);
    job.train(1);
  });
}

TEST(Rebuild, UnderCompression) {
  std::array<std::string, 2> digests;
  run_all(2, [&](int rank, Group group) {
    Net net;
    torch::optim::AdamW adamw(net->parameters(), adamw_options());
    DataParallel dp(*net, adamw, std::move(group),
                    {.buckets = given(Fusion::parse("layer")),
                     .compression = Compression::parse("top-k:0.1,ef,dense-below=64")});
    Job job{net, adamw, &dp, rank, 2};
    for (int step = 0; step < 6; ++step) {
      if (step == 2) require_grad(net->first, false);
      if (step == 4) {
        require_grad(net->first, true);
        add_layer(job);
        add_group(job, net->extra->parameters());
        dp.rebuild(*net);
      }
      job.train(step);
    }
    EXPECT_EQ(dp.compression_report().steps, 6);
    digests[static_cast<std::size_t>(rank)] = parameter_digest(*net);
  });
  EXPECT_EQ(digests[0], digests[1]);
}

}  // namespace
}  // namespace dear::rebuild_test
