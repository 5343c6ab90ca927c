#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/testing/stub_device/stub_device.h"

namespace dear::stub_device::streams_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Streams : public ::testing::Test {
 protected:
  void TearDown() override { reset(); }

  const bool installed_ = (install(), true);
  const c10::impl::VirtualGuardImpl impl_{c10::DeviceType::PrivateUse1};
  const c10::Device device_ = device(0);
  const c10::Stream current_ = impl_.getStream(device_);
  const c10::Stream side_ = impl_.getStreamFromGlobalPool(device_);

  // Returns what the memory holds now, whoever wrote it; counts no wait.
  static std::vector<float> now(const at::Tensor& tensor) {
    const float* const first = tensor.const_data_ptr<float>();
    return {first, first + tensor.numel()};
  }
};

TEST_F(Streams, RunInOrder) {
  start_record();
  const at::Tensor x = at::full({2}, 3.0, device_);
  x.mul_(2);
  x.add_(1);
  finish();
  EXPECT_THAT(now(x), ElementsAre(7, 7));
  std::vector<std::string> names;
  for (const Ran& ran : take_record()) {
    EXPECT_EQ(ran.device, 0);
    EXPECT_EQ(ran.stream, current_.id());
    names.push_back(ran.what);
  }
  EXPECT_THAT(names, ElementsAre("aten::fill_.Scalar", "aten::mul.out", "aten::add.out"));
}

TEST_F(Streams, ReturnBeforeTheyRun) {
  const std::int64_t waits = host_waits();
  const Held held(current_);
  const at::Tensor x = at::zeros({2}, device_);
  x.add_(1);
  settle();
  EXPECT_FALSE(impl_.queryStream(current_));
  EXPECT_TRUE(std::isnan(now(x)[0]));
  EXPECT_EQ(host_waits(), waits);
}

TEST_F(Streams, KnowNoOrderWithoutAnEvent) {
  const at::Tensor x = at::zeros({2}, device_), y = at::zeros({2}, device_), z = at::zeros({2}, device_);
  finish();
  c10::Event event(c10::DeviceType::PrivateUse1);
  Held held(current_);
  x.add_(1);
  event.record(current_);
  {
    const c10::StreamGuard guard(side_);
    y.copy_(x);
    event.block(side_);
    z.copy_(x);
  }
  EXPECT_FALSE(event.query());
  settle();
  EXPECT_THAT(now(y), ElementsAre(0, 0));
  EXPECT_THAT(now(z), ElementsAre(0, 0));
  held.release();
  finish();
  EXPECT_TRUE(event.query());
  EXPECT_THAT(now(y), ElementsAre(0, 0));
  EXPECT_THAT(now(z), ElementsAre(1, 1));
}

TEST_F(Streams, AreHeldBeforeATaskOfAName) {
  const at::Tensor x = at::zeros({2}, device_);
  Held held(current_, "aten::mul.out");
  x.add_(1);
  x.mul_(3);
  x.add_(1);
  settle();
  EXPECT_THAT(now(x), ElementsAre(1, 1));
  held.release();
  finish();
  EXPECT_THAT(now(x), ElementsAre(4, 4));
}

TEST_F(Streams, SayThatAGraphIsCaptured) {
  {
    const Capture capture(side_);
    EXPECT_TRUE(side_.is_capturing());
    EXPECT_FALSE(current_.is_capturing());
  }
  EXPECT_FALSE(side_.is_capturing());
}

TEST_F(Streams, EventStandsForItsLastRecord) {
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(current_);
  finish();
  EXPECT_TRUE(event.query());
  Held held(current_);
  event.record(current_);
  EXPECT_FALSE(event.query());
  event.block(side_);  // waits for the second
  settle();
  EXPECT_FALSE(impl_.queryStream(side_));
  event.record(side_);  // changes nothing for those that wait
  held.release();
  finish();
  EXPECT_TRUE(event.query());
}

TEST_F(Streams, GiveAFreedBlockToTheNextTensorOfTheStream) {
  auto x = std::make_unique<at::Tensor>(at::full({256}, 5.0, device_));
  const at::Tensor y = at::zeros({256}, device_);
  finish();
  const void* const memory = x->const_data_ptr();
  Held held(side_);
  {
    const c10::StreamGuard guard(side_);
    y.copy_(*x);
  }
  x.reset();  // the side stream has not read it yet, and nobody recorded it there
  const at::Tensor next = at::full({256}, 7.0, device_);
  EXPECT_EQ(next.const_data_ptr(), memory);
  settle();
  held.release();
  finish();
  EXPECT_EQ(now(y)[0], 7);
}

TEST_F(Streams, PoisonFreedMemory) {
  auto x = std::make_unique<at::Tensor>(at::full({300}, 5.0, device_));
  const at::Tensor y = at::zeros({300}, device_);
  finish();
  Held held(side_);
  {
    const c10::StreamGuard guard(side_);
    y.copy_(*x);
  }
  x.reset();
  settle();
  held.release();
  finish();
  EXPECT_TRUE(std::isnan(now(y)[0]));
}

TEST_F(Streams, KeepARecordedBlockUntilTheOtherStreamHasPassed) {
  auto x = std::make_unique<at::Tensor>(at::full({512}, 5.0, device_));
  const at::Tensor y = at::zeros({512}, device_);
  finish();
  const void* const memory = x->const_data_ptr();
  Held held(side_);
  {
    const c10::StreamGuard guard(side_);
    y.copy_(*x);
  }
  x->record_stream(side_);
  x.reset();
  const at::Tensor next = at::full({512}, 7.0, device_);
  EXPECT_NE(next.const_data_ptr(), memory);
  settle();
  held.release();
  finish();
  EXPECT_EQ(now(y)[0], 5);
  EXPECT_EQ(at::empty({512}, device_).const_data_ptr(), memory);
}

TEST_F(Streams, CountWaitsOfTheHost) {
  const at::Tensor x = at::ones({4}, device_);
  const std::int64_t before = host_waits();
  std::int64_t expected = before;
  const auto waited = [&](int times) {
    expected += times;
    return host_waits() == expected;
  };
  const at::Tensor y = x.add(1).view({2, 2}).t();
  EXPECT_TRUE(waited(0));
  EXPECT_EQ(y.sum().item<float>(), 8);
  EXPECT_TRUE(waited(1));
  const at::Tensor host = at::empty({4});
  host.copy_(x, /*non_blocking=*/true);
  EXPECT_TRUE(waited(0));
  EXPECT_EQ(x.cpu().sum().item<float>(), 4);
  EXPECT_TRUE(waited(1));
  EXPECT_EQ(x.nonzero().size(0), 4);
  EXPECT_TRUE(waited(1));
  impl_.synchronizeStream(current_);
  EXPECT_TRUE(waited(1));
  impl_.synchronizeDevice(0);
  EXPECT_TRUE(waited(1));
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(current_);
  event.block(side_);
  event.synchronize();
  EXPECT_TRUE(waited(1));
}

TEST_F(Streams, EventsTellTheTimeBetweenThem) {
  c10::Event first(c10::DeviceType::PrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event second(c10::DeviceType::PrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  first.record(current_);
  Held held(current_);
  second.record(current_);
  EXPECT_THROW((void)first.elapsedTime(second), c10::Error);
  held.release();
  finish();
  EXPECT_GE(first.elapsedTime(second), 0);
}

TEST_F(Streams, AreOfEachThread) {
  const c10::StreamGuard guard(side_);
  c10::Stream other = side_;
  std::thread([&] { other = impl_.getStream(device_); }).join();
  EXPECT_EQ(other, impl_.getDefaultStream(device_));
  EXPECT_EQ(impl_.getStream(device_), side_);
}

TEST_F(Streams, KeepTheOrderUnderDelays) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    set_delays({.seed = seed, .largest = std::chrono::microseconds(50)});
    const at::Tensor x = at::zeros({8}, device_);
    at::Tensor y;
    c10::Event ready(c10::DeviceType::PrivateUse1), used(c10::DeviceType::PrivateUse1);
    for (int i = 0; i < 5; ++i) {
      used.block(current_);
      x.add_(1);
      ready.record(current_);
      const c10::StreamGuard guard(side_);
      ready.block(side_);
      y = i == 0 ? x.clone() : y.mul_(2).add_(x);
      used.record(side_);
    }
    finish();
    EXPECT_EQ(now(y)[7], 57);  // 1, 4, 11, 26, 57
    const c10::StreamGuard guard(side_);
    y.reset();
  }
}

TEST_F(Streams, EndWithTheFirstExceptionOfATask) {
  const at::Tensor x = at::zeros({2}, device_);
  enqueue(current_, "broken", [] { throw std::runtime_error("a kernel is broken"); });
  x.add_(1);
  try {
    finish();
    ADD_FAILURE();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("broken"));
  }
  EXPECT_THROW((void)x.sum().item(), std::runtime_error);
  reset();
  EXPECT_THAT(now(x), ElementsAre(0, 0));
  x.add_(1);
  finish();
  EXPECT_THAT(now(x), ElementsAre(1, 1));
}

TEST_F(Streams, HoldBytes) {
  const std::int64_t before = bytes_in_use(3);
  {
    const at::Tensor x = at::empty({1024}, device(3));
    EXPECT_EQ(bytes_in_use(3), before + 4096);
  }
  EXPECT_EQ(bytes_in_use(3), before);
  EXPECT_GE(largest_bytes_in_use(3), before + 4096);
}

}  // namespace
}  // namespace dear::stub_device::streams_test
