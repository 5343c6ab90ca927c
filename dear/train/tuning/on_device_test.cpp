// Buckets that are tuned by times which events of a device tell.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "dear/testing/stub_device/module.h"
#include "dear/testing/stub_device/process_group.h"
#include "dear/testing/stub_device/stub_device.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/net.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/streams/stream_collectives.h"
#include "dear/train/tuning/tuned.h"
#include "dear/train/tuning/tuning_progress.h"

namespace dear::tuning::on_device_test {
namespace {

using train::testing::kFeatures;
using train::testing::make_net;
using train::testing::rows;
using train::testing::run_all;

constexpr int kRanks = 2, kSteps = 80;

struct Result {
  std::vector<torch::Tensor> parameters;
  std::set<std::size_t> tried;        // candidates
  std::vector<std::size_t> running;   // candidates that ran last, by rank
  std::vector<double> seconds;        // of trials
  std::vector<double> predicted;      // by candidate
  std::vector<double> network_betas;  // as it was measured
};

Result train(bool on_stub, const BucketChoice& buckets) {
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups;
  if (on_stub) groups = stub_device::make_process_groups(kRanks);
  Result result;
  result.running.resize(kRanks);
  run_all(kRanks, [&](int rank, const Group& group) {
    const at::Device device = on_stub ? stub_device::device(rank) : at::Device(at::kCPU);
    const c10::OptionalDeviceGuard guard(on_stub ? std::optional(device) : std::nullopt);
    torch::nn::Sequential net = make_net();
    DataParallelOptions options{.buckets = buckets, .profile_steps = 2};
    if (on_stub) {
      stub_device::move(*net, device);
      options.streams = stream_collectives(groups[rank], device.type());
    }
    torch::optim::AdamW adamw(net->parameters(), 1e-3);
    DataParallel dp(*net, adamw, group, options);
    for (int step = 0; step < kSteps; ++step) {
      const auto batch = rows(step, 2 * rank, 2, kFeatures);
      torch::mse_loss(net->forward(batch.inputs.to(device)), batch.targets.to(device)).backward();
      dp.step();
    }
    dp.synchronize();
    const TuningProgress* progress = dp.tuning();
    if (progress != nullptr) result.running[rank] = progress->running;
    if (rank != 0) return;
    for (const torch::Tensor& tensor : net->parameters())
      result.parameters.push_back(tensor.detach().cpu().clone());
    if (progress == nullptr) return;
    for (const tune::Trial& trial : progress->trials) {
      result.tried.insert(trial.candidate);
      result.seconds.push_back(trial.seconds);
    }
    result.predicted = progress->predicted;
    for (const MeasuredNetwork& network : progress->networks)
      result.network_betas.push_back(network.link.beta_seconds_per_byte);
  });
  return result;
}

TEST(TuningOnADevice, TriesBucketsOnAllRanksAlikeAndChangesNoBit) {
  stub_device::install();
  const Result alike = train(/*on_stub=*/false, given(Fusion::parse("all")));
  const Result found =
      train(true, tuned({.start = Fusion::parse("all"), .method = "grid", .budget_iterations = 1e9}));
  for (std::size_t i = 0; i < alike.parameters.size(); ++i)
    EXPECT_TRUE(torch::equal(found.parameters[i], alike.parameters[i])) << "tensor " << i;
  EXPECT_GE(found.tried.size(), 3U);
  EXPECT_EQ(found.running[0], found.running[1]);
  for (const double seconds : found.seconds) EXPECT_GT(seconds, 0);
  for (const double seconds : found.predicted) EXPECT_GT(seconds, 0);
  ASSERT_FALSE(found.network_betas.empty());
  EXPECT_GT(found.network_betas.front(), 0);
  stub_device::reset();
}

TEST(TuningOnADevice, PlansBuckets) {
  stub_device::install();
  const Result alike = train(false, given(Fusion::parse("all")));
  const Result found = train(true, planned(Fusion::parse("layer")));
  for (std::size_t i = 0; i < alike.parameters.size(); ++i)
    EXPECT_TRUE(torch::equal(found.parameters[i], alike.parameters[i])) << "tensor " << i;
  stub_device::reset();
}

}  // namespace
}  // namespace dear::tuning::on_device_test
