#pragma once

#include <csignal>
#include <functional>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/systems/pipeline/testing/nets.h"

namespace dear::systems::pipeline::testing {

// On three ranks, as processes; the last kills itself within the second micro-batch.
inline void expect_a_killed_rank_is_named(const std::function<Group(int rank)>& meet) {
  const torch::Tensor x = torch::sin(torch::arange(8 * kWidth)).view({8, kWidth});
  const auto reports = os::testing::run_in_processes(3, [&](int rank) {
    const Group group = meet(rank);
    Net net;
    const auto layer = [&](const char* name) {
      return net.root->register_module(name, torch::nn::Linear(kWidth, kWidth));
    };
    const auto a = net.model.add("a", layer("a"), {PipelineModel::batch()});
    const auto b = net.model.add("b", layer("b"), {a});
    const auto last = layer("c");
    net.model.add_function("c",
                           [&, last, passes = std::make_shared<int>(0)](const Tensors& read) {
                             if (rank == 2 && ++*passes == 3)
                               raise(SIGKILL);  // the first is that of the sample
                             return last->forward(read[0]);
                           },
                           {b}, {last->weight, last->bias});
    Pipeline pipe(net.model, {x}, group, {.micro_batches = 4, .method = "equal-number", .measure = false});
    pipe.step({x}, x, loss_of);
  });
  EXPECT_EQ(reports[2], "killed by signal 9");
  // It waits for either neighbour when it hears of it.
  EXPECT_THAT(reports[1], ::testing::AllOf(::testing::StartsWith("TransportError: rank 1: stage 1 ('b') "),
                                           ::testing::HasSubstr("micro-batch"),
                                           ::testing::AnyOf(::testing::HasSubstr("stage 2 ('c') on rank 2"),
                                                            ::testing::HasSubstr("connection to rank 2"))));
  EXPECT_THAT(reports[0],
              ::testing::AllOf(::testing::StartsWith("TransportError: rank 0: stage 0 ('a') "),
                               ::testing::HasSubstr("micro-batch"), ::testing::HasSubstr("rank 2")));
}

}  // namespace dear::systems::pipeline::testing
