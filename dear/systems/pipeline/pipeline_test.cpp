// A pipeline computes what one process computes, whatever the model, the cuts, the schedule and the ranks.

#include "dear/systems/pipeline/pipeline.h"

#include <atomic>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/shaped/pair_links.h"
#include "dear/comm/shm/testing/shm_threads.h"
#include "dear/systems/pipeline/testing/nets.h"
#include "dear/systems/pipeline/testing/plans.h"

namespace dear::systems::pipeline::pipeline_test {
namespace {

using testing::accumulate;
using testing::Batch;
using testing::batch_of;
using testing::Cuts;
using testing::drawn_cuts;
using testing::drawn_net;
using ::testing::Each;
using testing::Gradients;
using testing::groups_of;
using ::testing::HasSubstr;
using testing::loss_of;
using testing::Net;
using testing::PlanFile;
using testing::run_on;
using testing::Tensors;

constexpr int kParts = 4;

double tolerance_of(at::ScalarType type) { return type == at::kDouble ? 1e-12 : 1e-6; }

void expect_near(const torch::Tensor& found, const torch::Tensor& expected, const std::string& what) {
  const double error = (found - expected).norm().item<double>();
  EXPECT_LE(error, tolerance_of(expected.scalar_type()) * (expected.norm().item<double>() + 1e-3)) << what;
}

// What the ranks found together; ranks that have one parameter have the same bits.
Gradients together(const std::vector<Gradients>& by_rank) {
  Gradients all;
  for (const Gradients& one : by_rank)
    for (const auto& [name, gradient] : one) {
      const auto [at, is_new] = all.emplace(name, gradient);
      EXPECT_TRUE(is_new || torch::equal(at->second, gradient)) << name;
    }
  return all;
}

struct Found {
  std::vector<double> losses;
  Gradients gradients;
};

// One step of a fresh net on ranks that are threads. Ranks but 0 begin with other values.
Found step_on(std::vector<Group> groups, std::uint64_t seed, const Batch& batch, at::ScalarType type,
              const PipelineOptions& options) {
  const std::size_t ranks = groups.size();
  std::vector<Net> nets;
  for (std::size_t rank = 0; rank < ranks; ++rank) nets.push_back(drawn_net(seed, type, seed + 100 * rank));
  std::vector<Gradients> gradients(ranks);
  Found found{.losses = std::vector<double>(ranks)};
  EXPECT_THAT(run_on(std::move(groups),
                     [&](int rank, const Group& group) {
                       const auto at = static_cast<std::size_t>(rank);
                       Pipeline pipe(nets[at].model, batch.inputs, group, options);
                       found.losses[at] = pipe.step(batch.inputs, batch.targets, loss_of);
                       gradients[at] = nets[at].gradients();
                     }),
              Each("ok"));
  found.gradients = together(gradients);
  return found;
}

void expect_as_one_process(const Found& found, std::uint64_t seed, const Batch& batch, at::ScalarType type,
                           int micro_batches) {
  const Net one = drawn_net(seed, type, seed);
  const double loss = accumulate(one, batch, micro_batches);
  for (const double value : found.losses) EXPECT_NEAR(value, loss, 1e-6 * loss);
  const Gradients expected = one.gradients();
  ASSERT_EQ(found.gradients.size(), expected.size());
  for (const auto& [name, gradient] : expected) expect_near(found.gradients.at(name), gradient, name);
}

class Schedules : public ::testing::TestWithParam<std::string> {};

TEST_P(Schedules, GiveTheGradientsOfOneProcess) {
  std::mt19937_64 random(11);
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const at::ScalarType type = seed % 3 == 0 ? at::kFloat : at::kDouble;
    const int ranks = 1 + static_cast<int>(seed % 4);
    const Net net = drawn_net(seed, type, seed);
    const bool several = GetParam() == "interleaved";
    Cuts cuts = drawn_cuts(random, net.model.operators().size(), several ? std::min(ranks, 3) : ranks,
                           several ? 2 : 1);
    cuts.schedule = GetParam();
    cuts.micro_batches = several ? 2 * static_cast<int>(cuts.devices.size()) : kParts;
    cuts.more_warm_up = static_cast<int>(seed % 2);
    const PlanFile file(net.model, cuts);
    SCOPED_TRACE(fmt::format("seed {}, stages of {}, on {}", seed, fmt::join(cuts.sizes, " "),
                             fmt::join(cuts.devices, " ")));
    const Batch batch = batch_of(2 * cuts.micro_batches, type);
    const Found found = step_on(groups_of(static_cast<int>(cuts.devices.size())), seed, batch, type,
                                {.plan_file = file.path(), .measure = false});
    expect_as_one_process(found, seed, batch, type, cuts.micro_batches);
  }
}
INSTANTIATE_TEST_SUITE_P(Of, Schedules, ::testing::Values("gpipe", "1f1b", "interleaved", "zb-h1"),
                         [](const auto& info) {
                           return info.param == "1f1b"    ? "one_f_one_b"
                                  : info.param == "zb-h1" ? "zb_h1"
                                                          : info.param;
                         });

// Replica r has the rows of a batch whose number is r; one process has all.
TEST(Pipelines, OfReplicasGiveTheMeansOfOneProcessWithAllBatches) {
  for (const std::string schedule : {"1f1b", "zb-h1", "interleaved"})
    for (const auto& [ranks, replicas] : {std::pair(4, 2), std::pair(2, 2), std::pair(6, 3)}) {
      if (schedule != "1f1b" && ranks != 4) continue;
      SCOPED_TRACE(fmt::format("{} on {} ranks, {} replicas", schedule, ranks, replicas));
      constexpr std::uint64_t kSeed = 5;
      std::vector<Net> nets;
      for (int rank = 0; rank < ranks; ++rank)
        nets.push_back(drawn_net(kSeed, at::kDouble, kSeed + 100 * static_cast<std::uint64_t>(rank)));
      const auto batch_of_replica = [](int replica, int step) {
        return batch_of(2 * kParts, at::kDouble, 10 * step + replica);
      };
      std::vector<Gradients> gradients(static_cast<std::size_t>(ranks));
      std::vector<double> losses(static_cast<std::size_t>(ranks));
      EXPECT_THAT(run_on(groups_of(ranks),
                         [&](int rank, const Group& group) {
                           const auto at = static_cast<std::size_t>(rank);
                           const int places = ranks / replicas;
                           Pipeline pipe(nets[at].model, batch_of_replica(0, 0).inputs, group,
                                         {.micro_batches = kParts,
                                          .stages = schedule == "interleaved" ? 2 * places : places,
                                          .replicas = replicas,
                                          .schedule = schedule,
                                          .measure = false});
                           for (int step = 0; step < 2; ++step) {
                             const Batch batch = batch_of_replica(rank % replicas, step);
                             losses[at] = pipe.step(batch.inputs, batch.targets, loss_of);
                           }
                           gradients[at] = nets[at].gradients();
                         }),
                  Each("ok"));
      const Net one = drawn_net(kSeed, at::kDouble, kSeed);
      double loss = 0;
      for (int step = 0; step < 2; ++step) {
        loss = 0;
        for (int replica = 0; replica < replicas; ++replica)
          loss += accumulate(one, batch_of_replica(replica, step), kParts) / replicas;
      }
      for (const double value : losses) EXPECT_NEAR(value, loss, 1e-9 * loss);
      const Gradients found = together(gradients);
      for (const auto& [name, gradient] : one.gradients())
        expect_near(found.at(name) * replicas, gradient, name);
    }
}

TEST(Pipelines, HaveAsManyReplicasOfEachPlace) {
  for (const int replicas : {0, 2, 4}) {
    const Net nets[]{drawn_net(1, at::kFloat, 1), drawn_net(1, at::kFloat, 1), drawn_net(1, at::kFloat, 1)};
    const Batch batch = batch_of(8, at::kFloat);
    EXPECT_THAT(run_on(groups_of(3),
                       [&](int rank, const Group& group) {
                         Pipeline(nets[rank].model, batch.inputs, group,
                                  {.micro_batches = kParts, .replicas = replicas, .measure = false});
                       }),
                Each(HasSubstr("give a divisor")));
  }
}

// Links of 1 MB/s to 100 MB/s, with latencies.
PairCluster uneven_links(int ranks) {
  PairCluster cluster{.name = "uneven"};
  for (int from = 0; from < ranks; ++from) {
    cluster.devices.push_back(
        {.name = fmt::format("d{}", from), .flops_per_second = 1e12, .memory_bytes = 1 << 30});
    cluster.bytes_per_second.emplace_back();
    cluster.latency_seconds.emplace_back();
    for (int to = 0; to < ranks; ++to) {
      const bool near = from / 2 == to / 2;
      cluster.bytes_per_second.back().push_back(from == to ? 0 : near ? 1e8 : 1e6);
      cluster.latency_seconds.back().push_back(from == to ? 0 : near ? 1e-5 : 1e-3);
    }
  }
  return cluster;
}

TEST(Pipelines, OverModelledLinksArePlannedAndGiveTheGradientsOfOneProcess) {
  const PairCluster cluster = uneven_links(4);
  std::vector<Group> groups;
  for (auto& channels : channels::testing::make_thread_channels(4))
    groups.emplace_back(backends::make_shaped(std::move(channels), cluster), Group::Options{});
  const Batch batch = batch_of(16, at::kDouble);
  const Found found = step_on(std::move(groups), 5, batch, at::kDouble,
                              {.micro_batches = 8, .cluster = cluster, .record_trace = true});
  expect_as_one_process(found, 5, batch, at::kDouble, 8);
}

TEST(Pipelines, InSharedMemoryGiveTheGradientsOfOneProcess) {
  for (const int ranks : {2, 4}) {
    std::vector<Group> groups;
    for (auto& backend : backends::testing::make_shm_threads(ranks))
      groups.emplace_back(std::move(backend), Group::Options{});
    const Batch batch = batch_of(16, at::kDouble);
    const Found found =
        step_on(std::move(groups), 6, batch, at::kDouble, {.micro_batches = 8, .measure = false});
    expect_as_one_process(found, 6, batch, at::kDouble, 8);
  }
}

// Sets a promise when something has happened so often.
class Counted {
 public:
  explicit Counted(int times) : left_(times) {}
  void happened() {
    if (--left_ == 0) all_.set_value();
  }
  [[nodiscard]] bool came() const {
    return all_came_.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
  }

 private:
  std::atomic<int> left_;
  std::promise<void> all_;
  std::shared_future<void> all_came_ = all_.get_future().share();
};

// The rank behind takes nothing before the one in front has computed and sent all forwards; and that goes
// back to nothing before the one behind has sent all gradients. Messages are long enough for channels to wait
// for their receive.
TEST(Pipelines, ComputeOnWhileNobodyTakesWhatTheySent) {
  Counted forwards(kParts + 1), backwards(kParts);  // one forward is of the sample
  const auto make = [&](int rank) {
    Net net;
    const auto layer = [&](const char* name) {
      return net.root->register_module(name, torch::nn::Linear(testing::kWidth, testing::kWidth));
    };
    const auto front = layer("front"), behind = layer("behind");
    const auto passes = std::make_shared<int>(0);
    const auto x = net.model.add_function(
        "front",
        [&, front, rank, passes](const Tensors& read) {
          const torch::Tensor made = front->forward(read[0]);
          if (rank == 0) forwards.happened();
          if (rank == 0 && ++*passes > 1)
            made.register_hook([&](const torch::Tensor& /*gradient*/) { EXPECT_TRUE(backwards.came()); });
          return made;
        },
        {PipelineModel::batch()}, {front->weight, front->bias});
    net.model.add_function(
        "behind",
        [&, behind, rank, passes](const Tensors& read) {
          const torch::Tensor made = behind->forward(read[0]);
          if (rank == 0 || ++*passes == 1) return made;
          EXPECT_TRUE(forwards.came());
          made.register_hook([&](const torch::Tensor& /*gradient*/) { backwards.happened(); });
          return made;
        },
        {x}, {behind->weight, behind->bias});
    net.root->to(at::kDouble);
    return net;
  };
  const Net nets[]{make(0), make(1)};
  const Batch batch = batch_of(64 * kParts, at::kDouble);
  EXPECT_THAT(run_on(groups_of(2),
                     [&](int rank, const Group& group) {
                       Pipeline pipe(nets[rank].model, {batch.inputs[0]}, group,
                                     {.micro_batches = kParts, .schedule = "gpipe", .measure = false});
                       pipe.step({batch.inputs[0]}, batch.targets, loss_of);
                     }),
              Each("ok"));
}

TEST(Pipelines, WithARatioOfOneAreThoseWithoutCompressionToTheBit) {
  const Batch batch = batch_of(16, at::kFloat);
  const auto with = [&](const std::string& compression) {
    return step_on(groups_of(3), 4, batch, at::kFloat,
                   {.micro_batches = 4,
                    .method = "equal-number",
                    .compression = compression,
                    .ratio = 1,
                    .measure = false})
        .gradients;
  };
  const Gradients off = with("none");
  for (const std::string compression : {"top-k", "ada-top-k"}) {
    const Gradients on = with(compression);
    ASSERT_EQ(on.size(), off.size());
    for (const auto& [name, gradient] : off) EXPECT_TRUE(torch::equal(on.at(name), gradient)) << name;
  }
}

// By torch's own top-k.
torch::Tensor largest(const torch::Tensor& tensor, std::int64_t ratio) {
  const torch::Tensor flat = tensor.detach().flatten();
  const torch::Tensor places = std::get<1>(flat.abs().topk(flat.numel() / ratio));
  return torch::zeros_like(flat).scatter(0, places, flat.index_select(0, places)).view_as(tensor);
}

TEST(Pipelines, SendTheLargestElementsOfFloatingPointTensorsOnly) {
  constexpr std::int64_t kRatio = 4;
  const auto make = [] {
    Net net;
    const auto front =
        net.root->register_module("front", torch::nn::Linear(testing::kWidth, testing::kWidth));
    const auto behind =
        net.root->register_module("behind", torch::nn::Linear(testing::kWidth, testing::kWidth));
    const auto made = net.model.add_several(
        "front", 2, [front](const Tensors& read) { return Tensors{front->forward(read[0]), read[1].gt(1)}; },
        {PipelineModel::batch(0), PipelineModel::batch(1)});
    net.model.add_function("behind",
                           [behind](const Tensors& read) {
                             return behind->forward(read[0] * read[1].unsqueeze(1)) * torch::tanh(read[0]);
                           },
                           {made[0], made[1]}, {behind->weight, behind->bias});
    testing::draw_parameters(*net.root, 3);
    return net;
  };
  const Batch batch = batch_of(8, at::kFloat);
  std::vector<Net> nets{make(), make()};
  EXPECT_THAT(run_on(groups_of(2),
                     [&](int rank, const Group& group) {
                       Pipeline pipe(
                           nets[static_cast<std::size_t>(rank)].model, batch.inputs, group,
                           {.micro_batches = 2, .compression = "top-k", .ratio = kRatio, .measure = false});
                       pipe.step(batch.inputs, batch.targets, loss_of);
                       EXPECT_GT(pipe.statistics().bytes_sent, 0);
                     }),
              Each("ok"));
  const Net one = make();
  auto parameters = one.root->named_parameters();
  for (int part = 0; part < 2; ++part) {
    const auto of = [&](const torch::Tensor& tensor) {
      return tensor.chunk(2)[static_cast<std::size_t>(part)];
    };
    const torch::Tensor made =
        torch::linear(of(batch.inputs[0]), parameters["front.weight"], parameters["front.bias"]);
    const torch::Tensor arrived = largest(made, kRatio).requires_grad_();
    const torch::Tensor output = torch::linear(arrived * of(batch.inputs[1]).gt(1).unsqueeze(1),
                                               parameters["behind.weight"], parameters["behind.bias"]) *
                                 torch::tanh(arrived);
    (loss_of(output, of(batch.targets)) / 2).backward();
    made.backward(largest(arrived.grad(), kRatio));
  }
  const Gradients found = together({nets[0].gradients(), nets[1].gradients()});
  for (const auto& [name, gradient] : one.gradients()) expect_near(found.at(name), gradient, name);
}

TEST(Pipelines, TrainAsOneProcessAndTheirStateIsWholeAndLoadsUnderAnotherPlan) {
  constexpr std::uint64_t kSeed = 7;
  const Net one = drawn_net(kSeed, at::kDouble, kSeed);
  torch::optim::AdamW optimizer(one.root->parameters(), 1e-2);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    accumulate(one, batch_of(8, at::kDouble, step), kParts);
    optimizer.step();
  }
  std::map<std::string, torch::Tensor> state;
  const auto expect_state = [&] {
    for (const auto& item : one.root->named_parameters())
      expect_near(state.at(item.key()), item.value(), item.key());
  };
  for (const int ranks : {3, 2}) {
    std::vector<Net> nets;
    for (int rank = 0; rank < ranks; ++rank) nets.push_back(drawn_net(kSeed, at::kDouble, kSeed));
    EXPECT_THAT(run_on(groups_of(ranks),
                       [&](int rank, const Group& group) {
                         Pipeline pipe(nets[static_cast<std::size_t>(rank)].model,
                                       batch_of(8, at::kDouble).inputs, group,
                                       {.micro_batches = kParts, .measure = false});
                         if (ranks == 2) pipe.load_state(state);
                         torch::optim::AdamW own(pipe.parameters(), 1e-2);
                         for (int step = 0; step < 3 && ranks == 3; ++step) {
                           const Batch batch = batch_of(8, at::kDouble, step);
                           own.zero_grad();
                           pipe.step(batch.inputs, batch.targets, loss_of);
                           own.step();
                         }
                         auto whole = pipe.state();
                         group.barrier().wait();
                         if (rank == ranks - 1) state = std::move(whole);
                       }),
                Each("ok"));
    expect_state();
  }
}

TEST(Pipelines, AddGradientsToThoseThatAreThere) {
  const Batch batch = batch_of(8, at::kDouble);
  std::vector<Net> nets{drawn_net(2, at::kDouble, 2), drawn_net(2, at::kDouble, 2)};
  EXPECT_THAT(run_on(groups_of(2),
                     [&](int rank, const Group& group) {
                       Pipeline pipe(nets[static_cast<std::size_t>(rank)].model, batch.inputs, group,
                                     {.micro_batches = kParts, .measure = false});
                       for (int step = 0; step < 2; ++step) pipe.step(batch.inputs, batch.targets, loss_of);
                     }),
              Each("ok"));
  const Net one = drawn_net(2, at::kDouble, 2);
  for (int step = 0; step < 2; ++step) accumulate(one, batch, kParts);
  const Gradients found = together({nets[0].gradients(), nets[1].gradients()});
  for (const auto& [name, gradient] : one.gradients()) expect_near(found.at(name), gradient, name);
}

}  // namespace
}  // namespace dear::systems::pipeline::pipeline_test
