// Training on the stub device with gradients that the host must see: those that travel encoded, and rows.

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "dear/comm/group/single.h"
#include "dear/train/data_parallel/testing/on_stub_device.h"
#include "dear/train/streams/host_copy.h"

namespace dear::stub_host_copies_test {
namespace {

using train::testing::adamw_options;
using train::testing::on_stub::equal;
using train::testing::on_stub::Job;
using train::testing::on_stub::run;
using train::testing::on_stub::Setting;
using train::testing::on_stub::Stream;

class HostCopiesOnTheStubDevice : public train::testing::on_stub::OnTheStubDevice {};

constexpr std::size_t kSteps = 5;

Setting compressed(const std::string& compression, const std::string& policy) {
  return {.first_steps = false,
          .policy = policy,
          .make = [compression](Job& job, Group group, DataParallelOptions options) {
            options.compression = Compression::parse(compression + ",dense-below=16");
            job.optimizer = std::make_unique<torch::optim::AdamW>(job.net->parameters(), adamw_options());
            return std::make_unique<DataParallel>(*job.net, *job.optimizer, std::move(group), options);
          }};
}

// Backward passes on a stream of their own, parameters read there, a step given up, and other buckets.
void train_irregularly(Job& job) {
  for (std::size_t step = 0; step < kSteps; ++step) {
    const bool aside = step % 2 == 1;
    if (aside) job.order(Stream::program, Stream::side);
    job.on(aside ? Stream::side : Stream::program, [&] { job.backward(step); });
    if (aside) job.order(Stream::side, Stream::program);
    step == 2 ? job.dp->discard_step() : static_cast<void>(job.dp->step());
    if (step == 3) job.dp->regroup(Fusion::parse("all"));
    if (step == 4) job.see(job.net->head->weight);
  }
  const CompressionReport report = job.dp->compression_report();
  job.see(static_cast<double>(report.steps));
  job.see(report.bytes);
}

TEST_F(HostCopiesOnTheStubDevice, EncodedGradientsTrainToTheBitsOfTheCpu) {
  for (const char* policy : {"dear", "wfbp", "serial"}) {
    for (const char* compression : {"top-k:0.1,ef", "random-block:0.1,ef,momentum=0.5,nesterov,decay=1e-2",
                                    "fp16,ef", "low-rank:2,ef", "sketch"}) {
      Setting setting = compressed(compression, policy);
      const std::vector<at::Tensor> found = run(train_irregularly, setting);
      setting.on_stub = false;
      EXPECT_TRUE(equal(found, run(train_irregularly, setting))) << policy << " " << compression;
    }
  }
}

// The gradients are written late, on the stream of the backward pass: the copy waits for them.
TEST_F(HostCopiesOnTheStubDevice, ACopyTakesWhatTheProgramHasStillToWrite) {
  const auto program = [](Job& job) {
    for (std::size_t step = 0; step < 3; ++step)
      job.lag_until_the_host_waits(Stream::program, [&] { job.train(step); });
  };
  // Without Guard::after_gradients the bits differ most often: the copy may still come last.
  train::testing::on_stub::expect_guarded(streams::Guard::none, program, compressed("top-k:0.2,ef", "dear"));
}

TEST_F(HostCopiesOnTheStubDevice, RowsOfADeviceAreTheRowsOfTheHost) {
  const at::Device device = stub_device::device(0);
  Group group(comm::make_single(), {});
  streams::BucketStreams streams(device, 1);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    // 2 elements before, 5 rows of 3, and 1 element of padding.
    at::Tensor expected = torch::zeros({18}, torch::dtype(type));
    expected[2 + 3 * 1 + 2] = 0.5;
    expected[2 + 3 * 4] = -0.0;
    const at::Tensor vector = expected.to(device);
    const View view{.buffer = group.allocate(18 * 8), .count = 18, .dtype = DType::f64};
    streams::FlatHostCopy copy(vector, view, streams);
    const buckets::RowsOfTensor rows{.elements = {2, 17}, .rows = 5};
    copy.follow();
    EXPECT_EQ(copy.take_rows(rows, 1), (std::vector<std::int32_t>{1, 4})) << type;
    EXPECT_EQ(view.buffer.data()[(2 + 3 + 2) * expected.element_size() + expected.element_size() - 1],
              std::byte{0});
    EXPECT_EQ(copy.take_rows(rows, 2), (std::vector<std::int32_t>{1, 4})) << type;
    const at::Tensor host = torch::from_blob(view.buffer.data(), {18}, torch::dtype(type));
    EXPECT_TRUE(at::equal(host, expected)) << type;
    EXPECT_TRUE(std::signbit(host[2 + 3 * 4].item<double>())) << type;

    host.fill_(7);
    copy.give_rows(rows, std::vector<std::int32_t>{0, 3});
    at::Tensor given = torch::zeros({18}, torch::dtype(type));
    for (const int row : {0, 3}) given.narrow(0, 2 + 3 * row, 3).fill_(7);
    EXPECT_TRUE(at::equal(vector.cpu(), given)) << type;
    copy.give();
    EXPECT_TRUE(at::equal(vector.cpu(), host)) << type;
    copy.give_rows(rows, {});
    EXPECT_TRUE(at::equal(vector.cpu(), torch::zeros({18}, torch::dtype(type)))) << type;
    vector.fill_(3);
    copy.follow();
    copy.take();
    EXPECT_TRUE(at::equal(host, torch::full({18}, 3.0, torch::dtype(type)))) << type;
  }
}

}  // namespace
}  // namespace dear::stub_host_copies_test
