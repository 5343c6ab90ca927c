// Training on the stub device, whose streams are threads: the bits of one process on the CPU, whatever rests
// how long, and no wait of the host.

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/train/data_parallel/testing/mean_gradients.h"
#include "dear/train/data_parallel/testing/on_stub_device.h"

namespace dear::stub_streams_test {
namespace {

using train::testing::adamw_options;
using train::testing::Batch;
using train::testing::kInputs;
using train::testing::mean_gradients;
using train::testing::Net;
using train::testing::rows;
using train::testing::run_all;
using train::testing::on_stub::equal;
using train::testing::on_stub::Job;
using train::testing::on_stub::kRanks;
using train::testing::on_stub::run;
using train::testing::on_stub::Setting;
using train::testing::on_stub::Stream;

class TrainingOnTheStubDevice : public train::testing::on_stub::OnTheStubDevice {};

constexpr std::array<const char*, 4> kPolicies{"dear", "dear-replicated", "wfbp", "serial"};
constexpr std::size_t kSteps = 4;

// Waits of the host in the steps after the first two.
void count_waits(Job& job) {
  job.barrier();
  const std::int64_t before = stub_device::host_waits();
  job.barrier();
  for (std::size_t step = 2; step < kSteps; ++step) job.train(step);
  job.barrier();
  if (job.setting.on_stub) {
    EXPECT_EQ(stub_device::host_waits(), before) << job.setting.policy;
  }
  job.barrier();
}

TEST_F(TrainingOnTheStubDevice, TheHostNeverWaits) {
  for (const char* policy : kPolicies) {
    const std::vector<at::Tensor> found = run(count_waits, {.policy = policy});
    EXPECT_TRUE(equal(found, run(count_waits, {.on_stub = false, .policy = policy}))) << policy;
  }
}

// A rank that trains alone has a model on the device, and no collectives.
TEST_F(TrainingOnTheStubDevice, OneRankAloneTrainsThereWithoutAWaitOfTheHost) {
  run_all(1, [](int /*rank*/, const Group& group) {
    const auto trained = [&](at::Device device) {
      Net net;
      if (!device.is_cpu()) stub_device::move(*net, device);
      torch::optim::AdamW adamw(net->parameters(), adamw_options());
      DataParallel dp(*net, adamw, group, {.buckets = given()});
      std::vector<Batch> batches;
      for (std::size_t step = 0; step < kSteps; ++step) {
        const Batch batch = rows(static_cast<std::int64_t>(step), 0, 2, kInputs);
        batches.push_back({batch.inputs.to(device), batch.targets.to(device)});
      }
      const std::int64_t before = stub_device::host_waits();
      for (const Batch& batch : batches) {
        torch::mse_loss(net->forward(batch.inputs), batch.targets).backward();
        dp.step();
      }
      EXPECT_EQ(stub_device::host_waits(), before);
      std::vector<at::Tensor> result;
      for (const at::Tensor& tensor : net->parameters()) result.push_back(tensor.detach().cpu());
      return result;
    };
    EXPECT_TRUE(equal(trained(stub_device::device(0)), trained(at::kCPU)));
  });
}

// ---- A program of several streams: a batch comes on one, the second layer runs on another, and so does an
// average of the parameters.

struct Loop {
  Net& net;
  Job* job = nullptr;  // none in one process
  std::vector<at::Tensor> averages = {};

  template <typename Act>
  void on(Stream stream, Act act) const {
    job != nullptr ? job->on(stream, act) : act();
  }
  void order(Stream earlier, Stream later) const {
    if (job != nullptr) job->order(earlier, later);
  }
  void used_on(const at::Tensor& tensor, Stream stream) const {
    if (job != nullptr && job->impl)
      job->impl->recordDataPtrOnStream(tensor.storage().data_ptr(), job->stream(stream));
  }
  void backward(const Batch& batch) const {
    at::Tensor inputs, x, y;
    on(Stream::side, [&] { inputs = batch.inputs * 0.5; });
    order(Stream::side, Stream::program);
    used_on(inputs, Stream::program);
    x = torch::tanh(net->first(inputs));
    order(Stream::program, Stream::third);
    used_on(x, Stream::third);
    on(Stream::third, [&] { y = torch::tanh(net->second(x)); });
    order(Stream::third, Stream::program);
    used_on(y, Stream::program);
    torch::mse_loss(net->head(y), batch.targets).backward();
  }
  void average() {
    const torch::NoGradGuard no_grad;
    order(Stream::program, Stream::side);
    on(Stream::side, [&] {
      const std::vector<at::Tensor> parameters = net->parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (averages.size() == i) averages.push_back(at::zeros_like(parameters[i]));
        averages[i].mul_(0.9).add_(parameters[i], 0.1);
      }
    });
    order(Stream::side, Stream::program);  // which overwrites them in the next step
  }
  // After a step.
  void write() const {
    const torch::NoGradGuard no_grad;
    net->head->weight.mul_(0.5);
  }
  [[nodiscard]] std::vector<at::Tensor> result() const {
    std::vector<at::Tensor> all = net->parameters();
    all.insert(all.end(), averages.begin(), averages.end());
    return all;
  }
};

constexpr std::int64_t kBatches = 6, kStepsOfASeed = 2;
bool writes_after(std::int64_t step) { return step % 3 == 2; }

std::vector<at::Tensor> copy_of(const Loop& loop) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : loop.result()) copies.push_back(tensor.detach().cpu().clone());
  return copies;
}

// What one process has after the steps of each seed.
std::vector<std::vector<at::Tensor>> in_one_process(std::int64_t seeds) {
  Net net;
  torch::optim::AdamW adamw(net->parameters(), adamw_options());
  Loop loop{net};
  std::vector<at::Tensor> parameters = net->parameters();
  std::vector<std::vector<at::Tensor>> found;
  for (std::int64_t step = 0; step < seeds * kStepsOfASeed; ++step) {
    const std::vector<at::Tensor> means = mean_gradients(
        parameters, kRanks, [&](int rank) { loop.backward(rows(step % kBatches, 2 * rank, 2, kInputs)); });
    for (std::size_t i = 0; i < means.size(); ++i) parameters[i].mutable_grad() = means[i];
    adamw.step();
    for (at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    loop.average();
    if (writes_after(step)) loop.write();
    if (step % kStepsOfASeed == kStepsOfASeed - 1) found.push_back(copy_of(loop));
  }
  return found;
}

constexpr std::array<const char*, 3> kFusions{"layer", "2KiB", "all"};
constexpr std::uint64_t kTrainings = kPolicies.size() * kFusions.size();

// One training, of a policy and a fusion, under delays of the seeds `training`, `training` + kTrainings, ...
void train_under_delays(std::uint64_t training, bool on_stub,
                        const std::vector<std::vector<at::Tensor>>& expected) {
  const auto accumulate_on_side = [&](Job& job) {
    if (training % 2 == 1)
      job.on(Stream::side,
             [&] { job.kept = torch::autograd::impl::grad_accumulator(job.net->second->weight); });
  };
  const auto program = [&](Job& job) {
    Loop loop{job.net, &job};
    std::vector<at::Tensor> parameters = job.net->parameters();
    std::int64_t step = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::uint64_t seed = training + i * kTrainings;
      job.barrier();
      if (job.rank == 0 && on_stub)
        stub_device::set_delays({.seed = seed, .largest = std::chrono::microseconds(300), .one_in = 10});
      job.barrier();
      for (const std::int64_t end = step + kStepsOfASeed; step < end; ++step) {
        if (step % 5 == 0)
          for (at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
        loop.backward(job.batches.at(static_cast<std::size_t>(step % kBatches)));
        job.dp->step();
        loop.average();
        if (writes_after(step)) loop.write();
      }
      EXPECT_TRUE(equal(copy_of(loop), expected[i])) << "rank " << job.rank << ", seed " << seed;
    }
  };
  run(program, {.on_stub = on_stub,
                .lags = false,
                .first_steps = false,
                .policy = kPolicies.at(training % kPolicies.size()),
                .fusion = kFusions.at(training / kPolicies.size()),
                .prepare = accumulate_on_side});
}

TEST_F(TrainingOnTheStubDevice, WhateverStreamRestsTheBitsAreThoseOfOneProcess) {
  constexpr std::int64_t kSeeds = dear::testing::rounds(504) / static_cast<std::int64_t>(kTrainings);
  const std::vector<std::vector<at::Tensor>> expected = in_one_process(kSeeds);
  for (std::uint64_t training = 0; training < kPolicies.size(); ++training)
    train_under_delays(training, /*on_stub=*/false, {expected.begin(), expected.begin() + 3});
  for (std::uint64_t training = 0; training < kTrainings; ++training)
    train_under_delays(training, /*on_stub=*/true, expected);
}

}  // namespace
}  // namespace dear::stub_streams_test
