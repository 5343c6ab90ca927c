// Hazards of memory that is freed on one stream while another still uses it: each test holds the stream that
// uses it, and shows that the result is wrong where nobody keeps the memory. Letters:
// docs/internals/training.md.

#include <any>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "dear/train/data_parallel/testing/on_stub_device.h"
#include "dear/train/optim/optimizer.h"

namespace dear::stream_memory_test {
namespace {

using train::testing::on_stub::expect_guarded;
using train::testing::on_stub::Guard;
using train::testing::on_stub::Job;
using train::testing::on_stub::Stream;

class StreamMemory : public train::testing::on_stub::OnTheStubDevice {};

// Tensors of every size that a bucket or an activation may have had, in the memory that is free now.
std::vector<at::Tensor> other_tensors(const Job& job) {
  std::vector<at::Tensor> all;
  for (std::int64_t bytes = 512; bytes <= 16 * 1024; bytes += 512)
    for (int i = 0; i < 2; ++i) all.push_back(at::full({bytes / 4}, 7.0, job.device));
  return all;
}

// b
TEST_F(StreamMemory, BucketsLiveUntilTheCommunicationStreamIsThrough) {
  expect_guarded(Guard::drain, [](Job& job) {
    std::vector<at::Tensor> later;
    job.lag_until_the_host_waits(Stream::communication, [&] {
      job.train(2);
      job.dp.reset();
      job.optimizer.reset();
      job.net = nullptr;
      later = other_tensors(job);
    });
    for (const at::Tensor& tensor : later) job.see(tensor);
  });
}

// n: a process group may be destroyed when the DataParallel is.
TEST_F(StreamMemory, NothingIsEnqueuedOnceADataParallelIsDestroyed) {
  expect_guarded(Guard::drain, [](Job& job) {
    c10::Event end(job.device.type());
    job.lag_until_the_host_waits(Stream::communication, [&] {
      job.train(2);
      if (job.impl) end.record(job.stream(Stream::communication));
      job.dp.reset();
      job.see(!job.impl || end.query() ? 1 : 0);
    });
  });
}

// c and o: the CPU takes norms otherwise.
TEST_F(StreamMemory, ANormThatTheProgramLetsGoOfLivesUntilItIsRead) {
  expect_guarded(Guard::kept_result,
                 [](Job& job) {
                   job.backward(2);
                   at::Tensor norm = job.dp->clip_gradients(0.01);
                   job.lag(Stream::program, [&] {
                     job.see(norm);
                     norm.reset();
                   });
                   job.dp->step();
                 },
                 {.as_on_cpu = false});
}

// d, where the stream that made the gradients is not the one that calls step(), which copies them
TEST_F(StreamMemory, GradientsFromAnotherStreamLiveUntilTheyAreCopied) {
  expect_guarded(Guard::kept_tensor, [](Job& job) {
    for (at::Tensor& tensor : job.net->parameters()) tensor.mutable_grad().reset();
    {
      const auto guard = job.dp->no_sync();
      job.backward(2);
    }
    job.order(Stream::program, Stream::third);
    job.lag(Stream::third, [&] { job.on(Stream::third, [&] { job.dp->step(); }); });
    job.order(Stream::third, Stream::program);
    job.train(3);
  });
}

// d, on one stream: the copy into the bucket is enqueued there before the memory is free, so nothing has to
// keep it. l: a collective reads buckets alone, so what autograd frees may be anybody's.
TEST_F(StreamMemory, GradientsThatWereSetToNoneAndBuffersOfAutogradAreFreeAtOnce) {
  for (const Stream lagging : {Stream::program, Stream::communication})
    expect_guarded(Guard::none, [lagging](Job& job) {
      for (std::size_t step = 2; step < 4; ++step) {
        for (at::Tensor& tensor : job.net->parameters()) tensor.mutable_grad().reset();
        std::vector<at::Tensor> later;
        job.lag(lagging, [&] {
          job.backward(step);
          later = other_tensors(job);
        });
        job.dp->step();
        for (const at::Tensor& tensor : later) job.see(tensor);
      }
    });
}

// Stochastic gradient descent whose learning rate is a tensor of the device.
class TensorRate : public Optimizer {
 public:
  TensorRate(std::vector<at::Tensor> parameters, at::Tensor rate)
      : parameters_(std::move(parameters)), rate_(std::move(rate)) {}

  [[nodiscard]] std::string name() const override { return "TensorRate"; }
  std::optional<std::string> choose_updates(Updates /*updates*/, Ownership /*ownership*/) override {
    return std::nullopt;
  }
  [[nodiscard]] std::vector<std::vector<at::Tensor>> parameter_groups() const override {
    return {parameters_};
  }
  [[nodiscard]] bool holds(const std::vector<std::vector<const c10::TensorImpl*>>& by_group) const override {
    return by_group.at(0).size() == parameters_.size();
  }
  [[nodiscard]] FlatVectors vectors(std::size_t /*group*/) const override { return {}; }
  [[nodiscard]] std::string options() const override { return ""; }
  void set_options(const std::string& /*options*/) override {}
  void step() override {}
  [[nodiscard]] std::unique_ptr<FlatOptimizer> make_flat() const override {
    return std::make_unique<Flat>(rate_);
  }
  [[nodiscard]] std::optional<OptimizerState> state(const at::Tensor& /*tensor*/) const override {
    return {};
  }
  void set_state(const at::Tensor& /*tensor*/, const std::optional<OptimizerState>& /*state*/) override {}
  void state_leaves() override {}
  void state_returns() noexcept override {}
  [[nodiscard]] bool state_is_away() const override { return true; }

 private:
  class Flat : public FlatOptimizer {
   public:
    explicit Flat(at::Tensor rate) : rate_(std::move(rate)) {}
    void capture_options() override { captured_ = rate_.clone(); }
    [[nodiscard]] bool has_current_options() const override { return true; }
    [[nodiscard]] std::vector<at::Tensor> option_tensors() const override { return {captured_}; }
    void step(const std::vector<std::vector<at::Tensor>>& by_group) override {
      const torch::NoGradGuard no_grad;
      for (const at::Tensor& tensor : by_group.at(0)) at::Tensor(tensor).sub_(tensor.grad() * captured_);
    }
    [[nodiscard]] std::optional<OptimizerState> state(std::size_t /*group*/,
                                                      const at::Tensor& /*tensor*/) const override {
      return {};
    }
    void set_state(std::size_t /*group*/, const at::Tensor& /*tensor*/,
                   const std::optional<OptimizerState>& /*state*/) override {}

   private:
    at::Tensor rate_, captured_;
  };

  std::vector<at::Tensor> parameters_;
  at::Tensor rate_;
};

// e: step() copies the rate on the stream that calls it, so that the program may change it at once; the next
// step() lets go of the copy, and updates may not have read it yet.
TEST_F(StreamMemory, ALearningRateOfTheDeviceLivesUntilUpdatesHaveReadIt) {
  const auto make = [](Job& job, Group group, const DataParallelOptions& options) {
    const at::Tensor rate = at::full({}, 0.1, job.device);
    job.kept = rate;
    return std::make_unique<DataParallel>(model_of(*job.net),
                                          std::make_unique<TensorRate>(job.net->parameters(), rate),
                                          std::move(group), options);
  };
  expect_guarded(Guard::kept_options,
                 [](Job& job) {
                   job.lag(Stream::communication, [&] {
                     job.backward(2);
                     job.order(Stream::program, Stream::third);
                     job.on(Stream::third, [&] { job.dp->step(); });
                     job.order(Stream::third, Stream::program);
                     std::any_cast<at::Tensor&>(job.kept).fill_(0.3);
                     job.train(3);
                   });
                   job.train(4);
                 },
                 {.make = make});
}

}  // namespace
}  // namespace dear::stream_memory_test
