#include "dear/workload/zoo/make_workload.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::zoo::make_workload_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Round numbers: 10 operations a second at best in fp32, 8 bytes a second.
constexpr Device kSlow{
    .name = "slow",
    .summary = "for a pencil",
    .source = "",
    .single = {.flops_per_second = 20, .convolution_efficiency = 0.25, .matmul_efficiency = 0.5},
    .half = {.flops_per_second = 40, .convolution_efficiency = 0.5, .matmul_efficiency = 0.5},
    .bytes_per_second = 16,
    .memory_efficiency = 0.5,
    .launch_seconds = 0.5,
    .memory_bytes = 100,
};

TEST(Device, TakesAsLongAsOperationsOrTransfersTake) {
  const Kernel computes{.kind = Kind::matmul, .flops = 100, .moved = 1, .weights = 1};
  EXPECT_DOUBLE_EQ(seconds(kSlow, {computes}, 3, DType::f32), 0.5 + 3 * 100 / 10.0);
  EXPECT_DOUBLE_EQ(seconds(kSlow, {computes}, 3, DType::f16), 0.5 + 3 * 100 / 20.0);
  const Kernel convolves{.kind = Kind::convolution, .flops = 100, .moved = 1, .weights = 1};
  EXPECT_DOUBLE_EQ(seconds(kSlow, {convolves}, 3, DType::f32), 0.5 + 3 * 100 / 5.0);
  const Kernel moves{.kind = Kind::memory, .flops = 0, .moved = 10, .weights = 4};
  EXPECT_DOUBLE_EQ(seconds(kSlow, {moves}, 3, DType::f32), 0.5 + (3 * 10 + 4) * 4 / 8.0);
  EXPECT_DOUBLE_EQ(seconds(kSlow, {moves}, 3, DType::bf16), 0.5 + (3 * 10 + 4) * 2 / 8.0);
  EXPECT_DOUBLE_EQ(seconds(kSlow, {moves, computes}, 3, DType::f32), 0.5 + 17 + 0.5 + 30);
  EXPECT_DOUBLE_EQ(seconds(kSlow, {}, 3, DType::f32), 0);
}

TEST(Device, IsFoundByName) {
  for (const Device& device : devices()) {
    EXPECT_EQ(&find_device(device.name), &device);
    EXPECT_FALSE(device.summary.empty() || device.source.empty()) << device.name;
    EXPECT_GT(device.half.flops_per_second, device.single.flops_per_second) << device.name;
  }
  EXPECT_THAT([] { find_device("b200"); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("no device 'b200'"), HasSubstr("rtx2080ti, v100"))));
}

class EveryModel : public ::testing::TestWithParam<std::string_view> {};

TEST_P(EveryModel, MakesAValidWorkload) {
  const Model& model = find_model(GetParam());
  const Architecture architecture = model.make(model.size);
  const Workload workload = make_workload(model, find_device("a100"), {.dtype = DType::bf16});
  EXPECT_NO_THROW(validate(workload));
  EXPECT_EQ(workload.layers.size(), architecture.layers.size());
  EXPECT_EQ(workload.bytes(), 2 * architecture.parameters());
  EXPECT_EQ(workload.buffer_bytes, architecture.buffer_bytes());
  for (const Layer& layer : workload.layers) {
    EXPECT_GT(layer.forward_seconds, 0) << layer.name;
    EXPECT_GT(layer.backward_seconds, 0) << layer.name;
    EXPECT_FALSE(layer.tensors.empty()) << layer.name;
  }
}

TEST_P(EveryModel, TrainsInSixteenGigabytesOrOneByOne) {
  const Model& model = find_model(GetParam());
  const Workload workload = make_workload(model, find_device("v100"));
  std::int64_t bytes = 3 * workload.bytes() + workload.buffer_bytes;  // parameter, gradient, momentum
  for (const Layer& layer : workload.layers) bytes += layer.activation_bytes;
  if (model.measured) {
    EXPECT_LT(bytes, find_device(model.measured->device).memory_bytes);
  } else if (model.batch > 1) {
    EXPECT_LT(bytes, std::int64_t{16} << 30);
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, EveryModel, ::testing::ValuesIn([] {
                           std::vector<std::string_view> names;
                           for (const Model& model : models()) names.push_back(model.name);
                           return names;
                         }()),
                         [](const auto& name) {
                           std::string text(name.param);
                           std::erase(text, '-');
                           return text;
                         });

TEST(MakeWorkload, TakesAsLongAsTheStudyMeasured) {
  const Device& device = find_device("rtx2080ti");
  for (const Model& model : models()) {
    if (!model.measured) continue;
    const Workload workload = make_workload(model, device);
    const double total = workload.forward_seconds() + workload.backward_seconds() + workload.update_seconds;
    EXPECT_NEAR(total, model.measured->seconds, 1e-9) << model.name;
    EXPECT_NEAR(workload.forward_seconds(), model.measured->forward_share * total, 1e-9) << model.name;
  }
}

// This carries the spread over layers: without scaling the roofline comes near, for convolutions and
// products, large kernels and small ones alike.
TEST(MakeWorkload, ComesNearWithoutTheMeasurement) {
  const Device& device = find_device("rtx2080ti");
  for (Model model : models()) {
    if (!model.measured) continue;
    const double measured = model.measured->seconds;
    model.measured.reset();
    const Workload workload = make_workload(model, device, {.dtype = DType::f32});
    const double total = workload.forward_seconds() + workload.backward_seconds() + workload.update_seconds;
    EXPECT_NEAR(total / measured, 1, 0.15) << model.name;
  }
}

// In fp32: gradient, parameter and states read, the latter two written. In half precision the gradient and
// the parameter are half as long, and a copy in fp32 is read and written: as many bytes.
TEST(MakeWorkload, UpdatesWithAsManyStatesAsTheOptimiserKeeps) {
  const Device& device = find_device("a100");
  const Model& model = find_model("resnet50");
  const double elements = 25'557'032;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int states : {0, 1, 2}) {
      const Workload workload = make_workload(model, device, {.dtype = dtype, .optimizer_states = states});
      EXPECT_DOUBLE_EQ(workload.update_seconds, transfer_seconds(device, elements * 4 * (3 + 2 * states)));
    }
  EXPECT_THROW(make_workload(model, device, {.optimizer_states = -1}), ConfigError);
}

TEST(MakeWorkload, TrainsLanguageModelsInTheHalfPrecisionOfTheDevice) {
  const auto usual = [](const char* model, const char* device) {
    return usual_dtype(find_model(model), find_device(device));
  };
  EXPECT_EQ(usual("gpt2", "h100"), DType::bf16);
  EXPECT_EQ(usual("gpt2", "v100"), DType::f16);
  EXPECT_EQ(usual("bert-large", "a100"), DType::bf16);
  EXPECT_EQ(usual("bert-large", "rtx2080ti"), DType::f32);  // where it was measured
  EXPECT_EQ(usual("resnet50", "a100"), DType::f32);
}

TEST(MakeWorkload, SaysOnWhichDevice) {
  EXPECT_EQ(make_workload(find_model("resnet18"), find_device("v100")).device, "v100");
}

TEST(MakeWorkload, ScalesToAnotherBatchByTheSameFactor) {
  Model model = find_model("resnet50");
  const Device& device = find_device("rtx2080ti");
  const double whole = make_workload(model, device).forward_seconds();
  const double half = make_workload(model, device, {.batch = 32}).forward_seconds();
  model.measured.reset();
  const double whole_modelled = make_workload(model, device).forward_seconds();
  const double half_modelled = make_workload(model, device, {.batch = 32}).forward_seconds();
  EXPECT_NEAR(half / whole, half_modelled / whole_modelled, 1e-12);
  EXPECT_GT(half, whole / 2) << "launches and weights do not shrink with the batch";
  EXPECT_LT(half, 0.6 * whole);
}

TEST(MakeWorkload, ScalesToAMeasuredIteration) {
  const Workload workload =
      make_workload(find_model("gpt2"), find_device("h100"),
                    {.dtype = DType::bf16, .iteration_seconds = 0.04, .forward_share = 0.3});
  EXPECT_NEAR(workload.forward_seconds(), 0.012, 1e-12);
  EXPECT_NEAR(workload.backward_seconds(), 0.028 - workload.update_seconds, 1e-12);
}

TEST(MakeWorkload, UpdatesByMemoryBandwidthAlone) {
  const Workload workload = make_workload(find_model("vgg16"), find_device("v100"));
  EXPECT_NEAR(workload.update_seconds, 5e-6 + 5 * 4 * 138'357'544.0 / (0.8 * 900e9), 1e-12);
}

// 22 million elements of fp32 and a few of indices, for each of 64 images. timm gives ResNet-50 11.1 million
// outputs of convolutions; each stands once before its norm and once after.
TEST(MakeWorkload, KnowsActivations) {
  const Workload workload = make_workload(find_model("resnet50"), find_device("v100"));
  double bytes = 0;
  for (const Layer& layer : workload.layers) bytes += static_cast<double>(layer.activation_bytes);
  EXPECT_NEAR(bytes, 2 * 11.1e6 * 4 * 64, 0.06 * bytes);
  EXPECT_EQ(workload.layers[0].activation_bytes, std::int64_t{64} * 112 * 112 * 4 * 64);
  EXPECT_EQ(workload.buffer_bytes, 26560 * 2 * 4 + 53 * 8);
  EXPECT_EQ(workload.buffers, 53 * 3);
}

TEST(MakeWorkload, TiesTheOutputEmbedding) {
  const Device& device = find_device("a100");
  const Workload gpt = make_workload(find_model("gpt2"), device);
  EXPECT_EQ(gpt.tensors.size(), 148U);
  EXPECT_EQ(gpt.layers.front().tensors, std::vector<TensorId>{0});
  EXPECT_EQ(gpt.layers.back().tensors, std::vector<TensorId>{0});
  EXPECT_EQ(gpt.layers.back().name, "lm_head");
  const Workload bert = make_workload(find_model("bert-base"), device);
  EXPECT_EQ(bert.layers[101].name, "cls.predictions");
  EXPECT_EQ(bert.layers[101].tensors, (std::vector<TensorId>{199, 0}));
}

struct Fault {
  const char* what;
  WorkloadOptions options;
  const char* message;
};
class FaultyOptions : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultyOptions, AreRefused) {
  EXPECT_THAT([] { make_workload(find_model("bert-base"), find_device("v100"), GetParam().options); },
              ThrowsMessage<ConfigError>(HasSubstr(GetParam().message)));
}
INSTANTIATE_TEST_SUITE_P(
    MakeWorkload, FaultyOptions,
    ::testing::Values(Fault{"batch", {.batch = -1}, "a batch of -1 cannot be"},
                      Fault{"size", {.size = 1 << 20}, "a size of 1048576 cannot be"},
                      Fault{"length", {.size = 513}, "a sequence of 513"},
                      Fault{"dtype", {.dtype = DType::i64}, "training in int64 on 'v100'"},
                      Fault{"seconds", {.iteration_seconds = 0.001}, "the backward of 'bert-base'"},
                      Fault{
                          "share", {.iteration_seconds = 1, .forward_share = 1}, "a share between 0 and 1"}),
    [](const auto& fault) { return fault.param.what; });

}  // namespace
}  // namespace dear::zoo::make_workload_test
