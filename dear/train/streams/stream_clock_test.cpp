// Times that a device tells: none before it has come to them, and each once.

#include "dear/train/streams/stream_clock.h"

#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "dear/testing/stub_device/stub_device.h"

namespace dear::streams::stream_clock_test {
namespace {

class ADevice : public ::testing::Test {
 protected:
  void SetUp() override { stub_device::install(); }
  void TearDown() override { stub_device::reset(); }
  const at::Device device_ = stub_device::device(0);
};

TEST_F(ADevice, TellsOfStepsThatItHasEndedAndTheHostDoesNotWait) {
  const c10::DeviceGuard guard(device_);
  const at::Tensor x = at::zeros({4}, device_);
  stub_device::finish();
  const std::int64_t waits = stub_device::host_waits();
  StepTimes times(device_);
  times.step_ended();
  x.add_(1);
  times.step_ended();
  stub_device::settle();
  ASSERT_EQ(times.take().size(), 1U);
  {
    const stub_device::Held held(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    x.add_(1);
    times.step_ended();
    x.add_(1);
    times.step_ended();
    stub_device::settle();
    EXPECT_TRUE(times.take().empty());
  }
  stub_device::settle();
  const std::vector<double> seconds = times.take();
  EXPECT_EQ(stub_device::host_waits(), waits);
  ASSERT_EQ(seconds.size(), 2U);
  for (const double one : seconds) EXPECT_GE(one, 0);
  EXPECT_TRUE(times.take().empty());
}

TEST_F(ADevice, LeavesOutPausesAndWhatIsInterrupted) {
  for (const at::Device device : {device_, at::Device(at::kCPU)}) {
    const c10::OptionalDeviceGuard guard(device.is_cpu() ? std::nullopt : std::optional(device));
    StepTimes times(device);
    const auto steps = [&](int count) {
      for (int i = 0; i < count; ++i) times.step_ended();
    };
    const auto taken = [&] {
      stub_device::settle();
      return times.take().size();
    };
    steps(3);
    EXPECT_EQ(taken(), 2U) << device;
    times.paused();
    steps(2);
    EXPECT_EQ(taken(), 1U) << device;
    for (int i = 0; i < 3; ++i) {  // a program that pauses in each step
      times.paused();
      steps(1);
    }
    EXPECT_EQ(taken(), 2U) << device;
    steps(2);
    times.interrupted();  // before they were asked for
    steps(2);
    EXPECT_EQ(taken(), 1U) << device;
  }
}

}  // namespace
}  // namespace dear::streams::stream_clock_test
