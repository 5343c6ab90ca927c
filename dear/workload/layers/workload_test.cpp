#include "dear/workload/layers/workload.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::workload_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A tied embedding, a layer in between without parameters, a head that reads the embedding again.
Workload tied() {
  return {.name = "tied",
          .tensors = {{"embedding", 100, DType::f32}, {"norm", 10, DType::bf16}, {"bias", 3, DType::f64}},
          .layers = {{"embed", {0}, 0.5, 1.0}, {"relu", {}, 0.25, 0.5}, {"head", {1, 2, 0}, 1.0, 2.0}},
          .update_seconds = 0.125};
}

TEST(Workload, SumsTensorsOnceAndTimesOverLayers) {
  const Workload workload = tied();
  EXPECT_NO_THROW(validate(workload));
  EXPECT_EQ(workload.bytes(), 100 * 4 + 10 * 2 + 3 * 8);
  EXPECT_DOUBLE_EQ(workload.forward_seconds(), 1.75);
  EXPECT_DOUBLE_EQ(workload.backward_seconds(), 3.5);
}

TEST(Workload, MayHaveNoTensors) {
  EXPECT_NO_THROW(validate({.name = "w", .tensors = {}, .layers = {{"relu", {}, 0, 0}}}));
}

struct Fault {
  const char* what;
  std::function<void(Workload&)> make;
  const char* message;
};

class FaultyWorkload : public ::testing::TestWithParam<Fault> {};
TEST_P(FaultyWorkload, IsRefusedByName) {
  Workload workload = tied();
  GetParam().make(workload);
  EXPECT_THAT([&] { validate(workload); }, ThrowsMessage<ConfigError>(HasSubstr(GetParam().message)))
      << GetParam().what;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultyWorkload,
    ::testing::Values(
        Fault{"no name", [](Workload& w) { w.name = ""; }, "the workload has no name"},
        Fault{"no layer", [](Workload& w) { w.layers = {}; }, "workload 'tied' has no layer"},
        Fault{"nameless tensor", [](Workload& w) { w.tensors[1].name = ""; }, "tensor 1 has no name"},
        Fault{"nameless layer", [](Workload& w) { w.layers[2].name = ""; }, "layer 2 has no name"},
        Fault{"empty tensor", [](Workload& w) { w.tensors[1].elements = 0; },
              "tensor 1 ('norm') has 0 elements"},
        Fault{"negative tensor", [](Workload& w) { w.tensors[0].elements = -4; },
              "tensor 0 ('embedding') has -4"},
        Fault{"huge tensor", [](Workload& w) { w.tensors[2].elements = kMost / 4; }, "tensor 2 ('bias')"},
        Fault{"huge sum", [](Workload& w) { w.tensors[0].elements = kMost / 4; }, "beyond 2^50 bytes"},
        Fault{"unused tensor", [](Workload& w) { w.layers[2].tensors = {1, 0}; }, "tensor 2 ('bias')"},
        Fault{"index out of range", [](Workload& w) { w.layers[1].tensors = {3}; },
              "layer 1 ('relu') lists tensor 3"},
        Fault{"index twice", [](Workload& w) { w.layers[2].tensors = {1, 2, 1}; }, "tensor 1 ('norm') twice"},
        Fault{"not by first use", [](Workload& w) { w.layers[2].tensors = {2, 1, 0}; },
              "tensor 2 ('bias') before tensor 1"},
        Fault{"negative forward", [](Workload& w) { w.layers[0].forward_seconds = -1; },
              "forward_seconds of layer 0 ('embed')"},
        Fault{"infinite backward", [](Workload& w) { w.layers[2].backward_seconds = kInfinity; },
              "backward_seconds of layer 2 ('head')"},
        Fault{"negative activation", [](Workload& w) { w.layers[2].activation_bytes = -1; },
              "activation_bytes of layer 2"},
        Fault{"huge activation",
              [](Workload& w) {
                w.buffer_bytes = 1;
                w.layers[1].activation_bytes = kMost;
              },
              "activation_bytes of layer 1"},
        Fault{"negative buffer", [](Workload& w) { w.buffer_bytes = -8; }, "buffer_bytes of workload 'tied'"},
        Fault{"update not a number", [](Workload& w) { w.update_seconds = kNan; },
              "update_seconds of workload 'tied'"}),
    [](const auto& fault) {
      std::string name = fault.param.what;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

}  // namespace
}  // namespace dear::workload_test
