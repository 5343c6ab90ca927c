#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "dear/testing/stub_device/module.h"
#include "dear/testing/stub_device/process_group.h"
#include "dear/train/data_parallel/testing/lagging_rank.h"
#include "dear/train/data_parallel/testing/one_process.h"
#include "dear/train/data_parallel/trainer.h"
#include "dear/train/streams/stream_collectives.h"

// Two ranks that train on the stub device, and a test that shows that a guard is needed.
namespace dear::train::testing::on_stub {

using Program = std::function<void(Job&)>;

// Both ranks: a step, after which each knows the stream of its collectives.
inline void find_communication(Job& job, std::size_t step) {
  if (!job.setting.on_stub) return job.train(step);
  static std::mutex mutex;  // ThreadSanitizer does not see that barriers in shared memory order threads
  static std::vector<stub_device::Ran> record;
  job.barrier();
  if (job.rank == 0) stub_device::start_record();
  job.barrier();
  job.train(step);
  job.barrier();
  if (job.rank == 0) {
    stub_device::finish();
    const std::lock_guard lock(mutex);
    record = stub_device::take_record();
  }
  job.barrier();
  std::unique_lock lock(mutex);
  for (const stub_device::Ran& ran : record)
    if (ran.device == job.rank && (ran.what == "reduce_scatter" || ran.what == "all_reduce"))
      job.streams[static_cast<std::size_t>(Stream::communication)] =
          c10::Stream(c10::Stream::UNSAFE, job.device, ran.stream);
  lock.unlock();
  job.barrier();
}

// All that each rank has in the end, on the CPU: parameters, and what it has seen.
inline std::vector<at::Tensor> run(const Program& program, const Setting& setting) {
  std::vector<c10::intrusive_ptr<::c10d::ProcessGroup>> groups;
  if (setting.on_stub) groups = stub_device::make_process_groups(kRanks);
  std::vector<std::vector<at::Tensor>> results(kRanks);
  run_all(kRanks, [&](int rank, const Group& group) {
    const c10::OptionalDeviceGuard guard(setting.on_stub ? std::optional(stub_device::device(rank))
                                                         : std::nullopt);
    Job job(rank, group, setting);
    DataParallelOptions options{.policy = setting.policy, .buckets = given(Fusion::parse(setting.fusion))};
    if (setting.on_stub) {
      stub_device::move(*job.net, job.device);
      options.streams = stream_collectives(groups[static_cast<std::size_t>(rank)], job.device.type());
    }
    for (int step = 0; step < 6; ++step) {
      const Batch batch = rows(step, 2 * rank, 2, kInputs);
      job.batches.push_back({batch.inputs.to(job.device), batch.targets.to(job.device)});
    }
    setting.prepare(job);
    if (setting.make) {
      job.dp = setting.make(job, group, options);
    } else {
      job.optimizer = std::make_unique<torch::optim::AdamW>(job.net->parameters(), adamw_options());
      job.dp = std::make_unique<DataParallel>(*job.net, *job.optimizer, group, options);
    }
    if (job.dp) Trainer::of(*job.dp).go_without(setting.without);
    if (setting.first_steps) {
      job.train(0);
      find_communication(job, 1);
    }
    program(job);
    if (job.dp) job.dp->synchronize();
    std::vector<at::Tensor>& result = results[static_cast<std::size_t>(rank)];
    if (job.net)
      for (const at::Tensor& tensor : job.net->parameters()) result.push_back(tensor.detach().cpu().clone());
    for (const at::Tensor& tensor : job.seen) result.push_back(tensor.cpu());
    job.barrier();
  });
  results[0].insert(results[0].end(), results[1].begin(), results[1].end());
  return results[0];
}

inline bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return a.size() == b.size();
}

// The program computes what it computes where nothing lags, but not without the guard. Guard::none: there is
// nothing that could be taken away.
inline void expect_guarded(Guard guard, const Program& program, Setting setting = {}) {
  setting.lags = false;
  const std::vector<at::Tensor> expected = run(program, setting);
  if (setting.as_on_cpu) {
    Setting on_cpu = setting;
    on_cpu.on_stub = false;
    EXPECT_TRUE(equal(run(program, on_cpu), expected)) << "the CPU computes something else";
  }
  setting.lags = true;
  EXPECT_TRUE(equal(run(program, setting), expected)) << "the guard does not hold";
  if (guard == Guard::none) return;
  setting.without = guard;
  EXPECT_FALSE(equal(run(program, setting), expected)) << "nothing is wrong without the guard";
}

class OnTheStubDevice : public ::testing::Test {
 protected:
  void SetUp() override { stub_device::install(); }
  void TearDown() override { stub_device::reset(); }
};

}  // namespace dear::train::testing::on_stub
