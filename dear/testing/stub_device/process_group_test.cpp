#include "dear/testing/stub_device/process_group.h"

#include <functional>
#include <thread>
#include <vector>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "dear/testing/stub_device/stub_device.h"

namespace dear::stub_device::process_group_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Group = c10::intrusive_ptr<::c10d::Backend>;

class ProcessGroup : public ::testing::TestWithParam<int> {
 protected:
  void TearDown() override { reset(); }
  const bool installed_ = (install(), true);
  const c10::impl::VirtualGuardImpl impl_{c10::DeviceType::PrivateUse1};

  static void on_ranks(int ranks, const std::function<void(int rank, Group)>& program) {
    const auto groups = make_process_groups(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        const c10::DeviceGuard guard(device(rank));
        program(rank, groups[static_cast<std::size_t>(rank)]->getBackend(c10::DeviceType::PrivateUse1));
      });
    for (std::thread& thread : threads) thread.join();
    finish();
  }
  static torch::Tensor values(int rank, std::vector<std::int64_t> sizes, double factor = 1) {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    return (torch::sin(torch::arange(count, torch::kFloat32) + rank) * factor).view(sizes);
  }
  static torch::Tensor on(int rank, std::vector<std::int64_t> sizes) {
    return values(rank, sizes).to(device(rank));
  }
  static std::vector<float> now(const at::Tensor& tensor) {
    const float* const first = tensor.const_data_ptr<float>();
    return {first, first + tensor.numel()};
  }
};

TEST_P(ProcessGroup, AddsInTheOrderOfRanks) {
  const int ranks = GetParam();
  for (const at::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    torch::Tensor expected;
    for (int rank = 0; rank < ranks; ++rank) {
      const torch::Tensor part = values(rank, {ranks, 5}, 1e3).to(type).to(torch::kFloat32);
      expected = rank == 0 ? part : expected + part;
    }
    expected = (expected / ranks).to(type);
    on_ranks(ranks, [&](int rank, const Group& group) {
      std::vector<torch::Tensor> reduced = {values(rank, {ranks, 5}, 1e3).to(type).to(device(rank))};
      torch::Tensor whole = reduced[0].clone(), shard = whole[rank];
      EXPECT_EQ(group->allreduce(reduced, {.reduceOp = ::c10d::ReduceOp::AVG, .asyncOp = false}), nullptr);
      // In place, as DeAR's buckets.
      group->_reduce_scatter_base(shard, whole, {.reduceOp = ::c10d::ReduceOp::AVG, .asyncOp = false});
      EXPECT_TRUE(torch::equal(reduced[0].cpu(), expected));
      EXPECT_TRUE(torch::equal(shard.cpu(), expected[rank]));
      group->_allgather_base(whole, shard, {.asyncOp = false});
      EXPECT_TRUE(torch::equal(whole.cpu(), expected));
    });
  }
}

TEST_P(ProcessGroup, HasTheOtherCollectives) {
  const int ranks = GetParam();
  on_ranks(ranks, [&](int rank, const Group& group) {
    const int last = ranks - 1;
    std::vector<torch::Tensor> x = {on(rank, {3})};
    group->broadcast(x, {.rootRank = last, .asyncOp = false});
    EXPECT_TRUE(torch::equal(x[0].cpu(), values(last, {3})));

    x = {on(rank, {3})};
    std::vector<std::vector<torch::Tensor>> all(1);
    for (int from = 0; from < ranks; ++from) all[0].push_back(torch::empty({3}, device(rank)));
    group->allgather(all, x, {.asyncOp = false});
    for (int from = 0; from < ranks; ++from)
      EXPECT_TRUE(torch::equal(all[0][static_cast<std::size_t>(from)].cpu(), values(from, {3})));

    std::vector<torch::Tensor> sum = {torch::zeros({3}, device(rank))};
    group->reduce_scatter(sum, all, {.reduceOp = ::c10d::ReduceOp::MAX, .asyncOp = false});
    EXPECT_TRUE(torch::equal(sum[0].cpu(), values(rank, {3})));

    torch::Tensor in = torch::full({ranks, 2}, double(rank), device(rank)), out = torch::empty_like(in);
    std::vector<std::int64_t> none;
    group->alltoall_base(out, in, none, none, {.asyncOp = false});
    EXPECT_TRUE(torch::equal(out.select(1, 1).cpu(), torch::arange(ranks, torch::kFloat32)));

    const std::int64_t waits = host_waits();
    group->barrier({})->wait();
    EXPECT_GT(host_waits(), waits);
  });
}

TEST_P(ProcessGroup, CoalescesCalls) {
  const int ranks = GetParam();
  on_ranks(ranks, [&](int rank, const Group& group) {
    torch::Tensor a = torch::ones({2 * ranks}, device(rank)), b = torch::full({4 * ranks}, 2.0, device(rank));
    torch::Tensor own_a = a.narrow(0, 2 * rank, 2), own_b = b.narrow(0, 4 * rank, 4);
    group->startCoalescing();
    group->_reduce_scatter_base(own_a, a, {.asyncOp = true});
    group->_reduce_scatter_base(own_b, b, {.asyncOp = true});
    const auto work = group->endCoalescing();
    work->wait();
    EXPECT_EQ((own_a.sum() + own_b.sum()).item<float>(), static_cast<float>(10 * ranks));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ProcessGroup, ::testing::Values(1, 2, 4));

// One thread is both ranks: nothing here waits for the host.
TEST_F(ProcessGroup, SynchronousCallsAreOnTheCurrentStream) {
  const auto groups = make_process_groups(2);
  const std::int64_t waits = host_waits();
  std::vector<std::vector<torch::Tensor>> x = {{torch::ones({2}, device(0))}, {torch::ones({2}, device(1))}};
  finish();
  Held held(impl_.getStream(device(1)));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    x[rank][0].add_(static_cast<double>(rank));
    EXPECT_EQ(groups[rank]->getBackend(c10::DeviceType::PrivateUse1)->allreduce(x[rank], {.asyncOp = false}),
              nullptr);
    x[rank][0].mul_(10);
  }
  settle();
  EXPECT_THAT(now(x[0][0]), ElementsAre(1, 1));  // waits for rank 1, and with it all that follows
  held.release();
  finish();
  EXPECT_THAT(now(x[0][0]), ElementsAre(30, 30));
  EXPECT_THAT(now(x[1][0]), ElementsAre(30, 30));
  EXPECT_EQ(host_waits(), waits);
}

TEST_F(ProcessGroup, AsynchronousCallsAreOnTheirOwnStream) {
  const auto groups = make_process_groups(2);
  const std::int64_t waits = host_waits();
  std::vector<std::vector<torch::Tensor>> x = {{torch::ones({2}, device(0))}, {torch::ones({2}, device(1))}};
  std::vector<torch::Tensor> y = {torch::zeros({2}, device(0)), torch::zeros({2}, device(1))};
  finish();
  std::vector<c10::intrusive_ptr<::c10d::Work>> works;
  Held held(impl_.getStream(device(1)));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    x[rank][0].add_(1);
    works.push_back(groups[rank]->getBackend(c10::DeviceType::PrivateUse1)->allreduce(x[rank]));
    y[rank].add_(5);  // the current stream goes on
  }
  settle();
  EXPECT_THAT(now(x[0][0]), ElementsAre(2, 2));
  EXPECT_THAT(now(y[0]), ElementsAre(5, 5));
  EXPECT_FALSE(works[0]->isCompleted());
  works[0]->wait();
  y[0].copy_(x[0][0]);
  settle();
  EXPECT_THAT(now(y[0]), ElementsAre(5, 5));
  held.release();
  finish();
  EXPECT_TRUE(works[0]->isCompleted());
  EXPECT_THAT(now(y[0]), ElementsAre(4, 4));
  EXPECT_EQ(works[1]->getFuture()->value().toTensorVector().size(), 1U);
  EXPECT_EQ(host_waits(), waits);
}

TEST_F(ProcessGroup, DifferentCallsAreAnError) {
  const auto groups = make_process_groups(2);
  std::vector<torch::Tensor> a = {torch::ones({2}, device(0))}, b = {torch::ones({3}, device(1))};
  groups[0]->getBackend(c10::DeviceType::PrivateUse1)->allreduce(a, {.asyncOp = false});
  groups[1]->getBackend(c10::DeviceType::PrivateUse1)->broadcast(b, {.asyncOp = false});
  try {
    finish();
    ADD_FAILURE();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    EXPECT_THAT(error.what(), HasSubstr("broadcast"));
  }
}

// The way of programs that hold a process group: through PyTorch's dispatcher.
TEST_F(ProcessGroup, IsReachedThroughTheDispatcher) {
  const auto groups = make_process_groups(1);
  std::vector<torch::Tensor> x = {torch::full({2}, 3.0, device(0))};
  groups[0]->allreduce(x)->wait();
  EXPECT_EQ(x[0].sum().item<float>(), 6);
}

}  // namespace
}  // namespace dear::stub_device::process_group_test
