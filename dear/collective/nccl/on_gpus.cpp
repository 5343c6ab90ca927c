// The suite of collectives on the GPUs of this host, one rank on each (on threads of one process). No part of
// the test run, which needs no GPU: bench/nccl_check runs it where there are some.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <cuda_runtime_api.h>
#include <future>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/error.h"
#include "dear/collective/nccl/nccl.h"
#include "dear/collective/testing/conformance.h"
#include "dear/collective/testing/ranks.h"

namespace dear::collective {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

int gpus() {
  int found = 0;
  return cudaGetDeviceCount(&found) == cudaSuccess ? std::min(found, 8) : 0;
}

using Body = std::function<void(std::unique_ptr<DeviceBackend> backend)>;
std::vector<std::string> run(int ranks, NcclOptions::Memory memory, const Body& body) {
  std::promise<std::string> id;
  const auto known = id.get_future().share();
  return testing::run_on_threads(ranks, [&](int rank) {
    NcclOptions options{.rank = rank, .size = ranks, .device = rank, .memory = memory};
    options.exchange = [&](const std::string& mine) {
      if (rank == 0) id.set_value(mine);
      return known.get();
    };
    body(make_nccl(options));
  });
}

// An average of NCCL's divides before it adds: the same number only where that is exact.
std::vector<Reduction> exact_reductions(int ranks) {
  const bool exact = (ranks & (ranks - 1)) == 0;
  return exact ? std::vector<Reduction>{Reduction::sum, Reduction::average, Reduction::max, Reduction::min}
               : std::vector<Reduction>{Reduction::sum, Reduction::max, Reduction::min};
}

TEST(NcclOnGpus, DoesEveryCollective) {
  ASSERT_GT(gpus(), 0) << "there is no GPU on this host";
  for (int ranks = 1; ranks <= gpus(); ++ranks) {
    const testing::ConformanceOptions options{.reductions = exact_reductions(ranks),
                                              .order = testing::Order::fixed};
    EXPECT_THAT(run(ranks, NcclOptions::Memory::host,
                    [&](std::unique_ptr<DeviceBackend> backend) {
                      Group group(std::move(backend), {});
                      testing::check_reductions(group, options);
                      testing::check_movements(group, options);
                      testing::check_in_flight(group, options);
                    }),
                Each("ok"))
        << ranks << " ranks";
  }
}

TEST(NcclOnGpus, QueuesBehindEventsWithoutTheHost) {
  ASSERT_GT(gpus(), 0) << "there is no GPU on this host";
  const int ranks = gpus();
  constexpr std::int64_t kCount = 4096;
  EXPECT_THAT(
      run(ranks, NcclOptions::Memory::device,
          [&](std::unique_ptr<DeviceBackend> backend) {
            const Deadline deadline = Deadline::after(std::chrono::seconds(60));
            const Buffer buffer = backend->allocate(kCount * 4, deadline);
            std::vector<float> values(kCount, static_cast<float>(backend->rank() + 1));
            cudaStream_t stream = nullptr;
            cudaEvent_t ready = nullptr;
            cudaEvent_t done = nullptr;
            ASSERT_EQ(cudaSetDevice(backend->rank()), cudaSuccess);
            ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
            ASSERT_EQ(cudaEventCreate(&ready), cudaSuccess);
            ASSERT_EQ(cudaEventCreate(&done), cudaSuccess);
            ASSERT_EQ(
                cudaMemcpyAsync(buffer.data(), values.data(), kCount * 4, cudaMemcpyHostToDevice, stream),
                cudaSuccess);
            ASSERT_EQ(cudaEventRecord(ready, stream), cudaSuccess);
            const View view{.buffer = buffer, .count = kCount};
            backend->enqueue({.operation = Operation::reduce_scatter, .view = view}, ready, done, deadline);
            backend->enqueue({.operation = Operation::all_gather, .view = view}, nullptr, done, deadline);
            backend->wait(done, deadline);
            ASSERT_EQ(cudaMemcpy(values.data(), buffer.data(), kCount * 4, cudaMemcpyDeviceToHost),
                      cudaSuccess);
            EXPECT_THAT(values, Each(static_cast<float>(ranks * (ranks + 1)) / 2));
            cudaEventDestroy(ready);
            cudaEventDestroy(done);
            cudaStreamDestroy(stream);
          }),
      Each("ok"));
}

TEST(NcclOnGpus, ARankThatDoesNotComeIsATimeout) {
  ASSERT_GT(gpus(), 0) << "there is no GPU on this host";
  try {
    make_nccl({.rank = 0,
               .size = 2,
               .exchange = [](const std::string& mine) { return mine; },
               .deadline = Deadline::after(std::chrono::seconds(2))});
    FAIL() << "it met a rank that is not there";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0"));
  }
}

TEST(NcclOnGpus, AnAbortEndsTheGroup) {
  ASSERT_GT(gpus(), 0) << "there is no GPU on this host";
  EXPECT_THAT(run(1, NcclOptions::Memory::device,
                  [](std::unique_ptr<DeviceBackend> backend) {
                    Group group(std::move(backend), {});
                    group.barrier().wait();
                    group.abort("it was asked to");
                    group.barrier().wait();
                  }),
              Each("TransportError: rank 0 failed: it was asked to"));
}

TEST(NcclOnGpus, MemoryThatIsNotThereIsAnError) {
  ASSERT_GT(gpus(), 0) << "there is no GPU on this host";
  EXPECT_THAT(run(1, NcclOptions::Memory::device,
                  [](std::unique_ptr<DeviceBackend> backend) {
                    Group group(std::move(backend), {});
                    static_cast<void>(group.allocate(std::int64_t{1} << 45));
                  }),
              Each(::testing::StartsWith("TransportError: rank 0 cannot allocate")));
}

}  // namespace
}  // namespace dear::collective
