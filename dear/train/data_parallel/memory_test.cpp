// The report of memory adds up to what the process uses: counted by libtorch's allocator, and by the kernel.

#include <atomic>
#include <fstream>
#include <mutex>
#include <string>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/ranks.h"
#include "dear/train/data_parallel/watch.h"

namespace dear::memory_test {
namespace {

using train::testing::run_all;

// Counts what libtorch allocates on the CPU, on any thread, while one lives.
class Counted final : public c10::Allocator {
 public:
  Counted() : before_(c10::GetCPUAllocator()) {
    live() = 0;
    c10::SetCPUAllocator(this, 100);
  }
  ~Counted() override { c10::SetCPUAllocator(before_, 100); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = c10::alloc_cpu(bytes);
    const std::lock_guard lock(mutex());
    if (data != nullptr) sizes()[data] = static_cast<std::int64_t>(bytes);
    live() += static_cast<std::int64_t>(data != nullptr ? bytes : 0);
    return {data, data, &Counted::free, c10::Device(c10::kCPU)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &Counted::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static std::atomic<std::int64_t>& live() {
    static std::atomic<std::int64_t> bytes = 0;
    return bytes;
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::unordered_map<void*, std::int64_t>& sizes() {
    static std::unordered_map<void*, std::int64_t> all;
    return all;
  }
  static void free(void* data) {
    if (data == nullptr) return;
    {
      const std::lock_guard lock(mutex());
      live() -= sizes()[data];
      sizes().erase(data);
    }
    c10::free_cpu(data);
  }
  c10::Allocator* before_;
};

// Of the segments that ranks share, which are mapped more than once: each in equal parts.
std::int64_t segment_bytes() {
  std::ifstream file("/proc/self/smaps");
  std::int64_t kib = 0;
  bool ours = false;
  for (std::string line; std::getline(file, line);) {
    if (line.find("memfd:dear") != std::string::npos) {
      ours = true;
    } else if (ours && line.starts_with("Pss:")) {
      kib += std::stoll(line.substr(4));
      ours = false;
    }
  }
  return 1024 * kib;
}

torch::nn::Sequential make_model(at::ScalarType type) {
  torch::nn::Sequential model;
  for (int i = 0; i < 4; ++i) model->push_back(torch::nn::Linear(700, 700));
  model->to(type);
  return model;
}

struct Case {
  std::string name;
  DataParallelOptions options;
  at::ScalarType type = at::kFloat;
};

class Memory : public ::testing::TestWithParam<Case> {};

TEST_P(Memory, AddsUpToWhatIsUsed) {
  constexpr int kRanks = 2;
  const Case& one = GetParam();
  Counted counted;
  std::vector<MemoryReport> reports(kRanks);
  run_all(kRanks, [&](int rank, const Group& group) {
    torch::manual_seed(1);
    auto model = make_model(one.type);
    torch::optim::AdamW adamw(model->parameters(), 1e-3);
    DataParallelOptions options = one.options;
    options.buckets = given(Fusion::parse("2MiB"));
    DataParallel dp(*model, adamw, group, options);
    const torch::Tensor input = torch::ones({1, 700}, one.type);
    for (int i = 0; i < 3; ++i) {
      model->forward(input).square().sum().backward();
      dp.step();
    }
    dp.synchronize();
    reports[rank] = dp.watch().memory();
    group.barrier().wait();
    if (rank == 0) {
      const std::int64_t used = Counted::live() + segment_bytes();
      const std::int64_t reported = reports[0].total() + reports[1].total();
      EXPECT_NEAR(static_cast<double>(reported), static_cast<double>(used), 0.03 * static_cast<double>(used));
    }
    group.barrier().wait();
  });

  const std::int64_t elements = 4 * (700 * 700 + 700);
  const std::int64_t size = one.type == at::kBFloat16 ? 2 : 4;
  const std::int64_t parameters = reports[0].parameters + reports[1].parameters;
  EXPECT_EQ(parameters, elements * size * (one.options.one_copy ? 1 : kRanks));
  EXPECT_EQ(reports[1].saved_by_one_copy, one.options.one_copy ? elements * size : 0);
  EXPECT_EQ(reports[1].gradients, elements * size);
  // Of the shard, or of everything: two vectors, and a master.
  const bool sharded = one.options.policy == "dear" || one.options.policy == "dear-eager";
  const double vector = static_cast<double>(elements) *
                        (one.options.fp32_masters ? 4.0 : static_cast<double>(size)) /
                        (sharded && !one.options.compression ? kRanks : 1);
  EXPECT_NEAR(static_cast<double>(reports[1].optimizer_state), 2 * vector, 0.01 * vector);
  EXPECT_NEAR(static_cast<double>(reports[1].masters), one.options.fp32_masters ? vector : 0, 0.01 * vector);
  EXPECT_EQ(reports[0].items()[10].second, reports[0].total());
}
INSTANTIATE_TEST_SUITE_P(
    Of, Memory,
    ::testing::Values(
        Case{"serial", {.policy = "serial", .buckets = given()}},
        Case{"wfbp", {.policy = "wfbp", .buckets = given()}},
        Case{"replicated", {.policy = "dear-replicated", .buckets = given()}},
        Case{"dear", {.policy = "dear", .buckets = given()}},
        Case{"eager", {.policy = "dear-eager", .buckets = given(), .profile_steps = 1000}},
        Case{"onecopy", {.policy = "dear", .buckets = given(), .one_copy = true}},
        Case{"masters", {.policy = "dear", .buckets = given(), .fp32_masters = true}, at::kBFloat16},
        Case{"compressed",
             {.policy = "dear", .buckets = given(), .compression = Compression::parse("bf16")}}),
    [](const auto& param) { return param.param.name; });

TEST(Memory, OfTheProgramItselfBeforeTheFirstStep) {
  run_all(2, [](int, const Group& group) {
    auto model = make_model(at::kFloat);
    torch::optim::AdamW adamw(model->parameters(), 1e-3);
    DataParallel dp(*model, adamw, group, {.buckets = given()});
    const MemoryReport report = dp.watch().memory();
    EXPECT_EQ(report.parameters, 4 * 4 * (700 * 700 + 700));
    EXPECT_EQ(report.total(), report.parameters);
  });
}

}  // namespace
}  // namespace dear::memory_test
