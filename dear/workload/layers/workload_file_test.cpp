#include "dear/workload/layers/workload_file.h"

#include <filesystem>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::workload_file_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr const char* kFile = R"({
  "format": "dear-workload",
  "version": 4,
  "name": "small",
  "device": "cpu, 4 threads",
  "update_seconds": 0.001,
  "buffer_bytes": 520,
  "buffers": 3,
  "tensors": [
    {"name": "embedding.weight", "elements": 4096, "dtype": "fp32"},
    {"name": "head.bias", "elements": 7, "dtype": "bf16"}
  ],
  "layers": [
    {"name": "embedding", "tensors": [0], "forward_seconds": 0.0001, "backward_seconds": 0.1, "activation_bytes": 65536},
    {"name": "head", "tensors": [1, 0], "forward_seconds": 1, "backward_seconds": 0.30000000000000004}
  ]
}
)";

void expect_same(const Workload& a, const Workload& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.update_seconds, b.update_seconds);
  EXPECT_EQ(a.buffer_bytes, b.buffer_bytes);
  EXPECT_EQ(a.buffers, b.buffers);
  EXPECT_EQ(a.device, b.device);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t t = 0; t < a.tensors.size(); ++t) {
    EXPECT_EQ(a.tensors[t].name, b.tensors[t].name);
    EXPECT_EQ(a.tensors[t].elements, b.tensors[t].elements);
    EXPECT_EQ(a.tensors[t].dtype, b.tensors[t].dtype);
  }
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (std::size_t l = 0; l < a.layers.size(); ++l) {
    EXPECT_EQ(a.layers[l].name, b.layers[l].name);
    EXPECT_EQ(a.layers[l].tensors, b.layers[l].tensors);
    EXPECT_EQ(a.layers[l].forward_seconds, b.layers[l].forward_seconds);
    EXPECT_EQ(a.layers[l].backward_seconds, b.layers[l].backward_seconds);
    EXPECT_EQ(a.layers[l].activation_bytes, b.layers[l].activation_bytes);
  }
}

TEST(WorkloadFile, IsReadAsWritten) {
  const Workload workload = parse_workload(kFile, "small.json");
  expect_same(workload,
              {.name = "small",
               .tensors = {{"embedding.weight", 4096, DType::f32}, {"head.bias", 7, DType::bf16}},
               .layers = {{"embedding", {0}, 0.0001, 0.1, 65536}, {"head", {1, 0}, 1.0, 0.1 + 0.2, 0}},
               .update_seconds = 0.001,
               .buffer_bytes = 520,
               .buffers = 3,
               .device = "cpu, 4 threads"});
}

TEST(WorkloadFile, OfVersion1IsStillRead) {
  const Workload workload = parse_workload(
      R"({"format": "dear-workload", "version": 1, "name": "old", "update_seconds": 0.5,
          "tensors": [], "layers": [{"name": "relu", "tensors": [], "forward_seconds": 1,
                                     "backward_seconds": 2}]})",
      "old.json");
  expect_same(workload,
              {.name = "old", .tensors = {}, .layers = {{"relu", {}, 1, 2}}, .update_seconds = 0.5});
}

TEST(WorkloadFile, IsWrittenWithItsBytesEvenWhereTheyAreNotKnown) {
  EXPECT_THAT(
      to_json({.name = "none", .tensors = {}, .layers = {{"relu", {}, 0, 0}}}),
      AllOf(HasSubstr("\"version\": 4,"), Not(HasSubstr("device")),
            HasSubstr("\"buffer_bytes\": 0,\n  \"buffers\": 0,"), HasSubstr("\"activation_bytes\":0}")));
}

TEST(WorkloadFile, SurvivesARoundTripBitForBit) {
  Workload workload = parse_workload(kFile, "small.json");
  workload.name = "quotes \" and \\ and ünïcode";
  workload.update_seconds = 1.0 / 3;
  workload.layers[0].forward_seconds = 4.9e-324;
  const std::string path =
      (std::filesystem::temp_directory_path() / ("dear-workload-" + std::to_string(::getpid()) + ".json"))
          .string();
  write_workload(workload, path);
  expect_same(read_workload(path), workload);
  std::filesystem::remove(path);
}

TEST(WorkloadFile, WithoutTensorsSurvivesARoundTrip) {
  const Workload workload{.name = "none", .tensors = {}, .layers = {{"relu", {}, 0, 0}}};
  expect_same(parse_workload(to_json(workload), "none"), workload);
}

TEST(WorkloadFile, IsNeverWrittenFromAnInvalidWorkload) {
  EXPECT_THAT([] { to_json({.name = "empty", .tensors = {}, .layers = {}}); },
              ThrowsMessage<ConfigError>(HasSubstr("has no layer")));
  EXPECT_THAT([] { to_json({.name = "w", .tensors = {}, .layers = {{"\xff", {}, 0, 0}}}); },
              ThrowsMessage<ConfigError>(HasSubstr("not UTF-8")));
  EXPECT_THAT(
      [] { to_json({.name = "w", .tensors = {}, .layers = {{"a", {}, 0, 0}, {"b\x1b[2J", {}, 0, 0}}}); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("layer 1"), HasSubstr("control character"))));
  EXPECT_THAT(
      [] { to_json({.name = "w", .tensors = {{"t", 1}, {"t", 1}}, .layers = {{"a", {0, 1}, 0, 0}}}); },
      ThrowsMessage<ConfigError>(HasSubstr("tensors[0] and tensors[1] are both named 't'")));
  EXPECT_THAT([] { to_json({.name = std::string(5000, 'm'), .tensors = {}, .layers = {{"a", {}, 0, 0}}}); },
              ThrowsMessage<ConfigError>(HasSubstr("more than 4096 bytes")));
}

TEST(WorkloadFile, ThatIsMissingIsNamed) {
  EXPECT_THAT([] { read_workload("/no/such/file.json"); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("/no/such/file.json"), HasSubstr("No such file"))));
}

// Says what to replace in kFile, by what, and what the message says.
struct Fault {
  std::string what;
  std::string by;
  std::string message;
};

class FaultyFile : public ::testing::TestWithParam<Fault> {};
TEST_P(FaultyFile, IsRefusedWithThePlace) {
  std::string text = kFile;
  const std::size_t position = text.find(GetParam().what);
  ASSERT_NE(position, std::string::npos);
  text.replace(position, GetParam().what.size(), GetParam().by);
  EXPECT_THAT([&] { parse_workload(text, "f.json"); },
              ThrowsMessage<ConfigError>(AllOf(StartsWith("f.json: "), HasSubstr(GetParam().message))))
      << text;
}

constexpr const char* kHead = R"("version": 4,
  "name": "small",
  "device": "cpu, 4 threads",
  "update_seconds": 0.001,
  "buffer_bytes": 520,
  "buffers": 3)";

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultyFile,
    ::testing::Values(
        Fault{"4096,", "4096;", "f.json: parse error at line 10"}, Fault{kFile, "", "parse error at line 1"},
        Fault{"0.0001", "1e999", "number overflow"}, Fault{kFile, "[1]", "not a workload file"},
        Fault{"dear-workload", "dear-trace", "not a workload file"},
        Fault{"\"version\": 4,", "", "f.json: version: missing"},
        Fault{"\"version\": 4", "\"version\": 5", "version: found 5"},
        Fault{"\"version\": 4", "\"version\": 0", "version: found 0"},
        Fault{"\"version\": 4", "\"version\": 1", ": unknown"},
        Fault{"\"version\": 4", "\"version\": 3", "f.json: buffers: unknown"},
        Fault{"\"cpu, 4 threads\"", "4", "device: expected a string"},
        Fault{kHead, "\"version\": 1, \"name\": \"small\", \"update_seconds\": 0.001",
              "layers[0].activation_bytes: unknown"},
        Fault{"520", "520.5", "buffer_bytes: expected an integer"},
        Fault{"520", "-520", "buffer_bytes of workload 'small'"},
        Fault{"\"buffers\": 3", "\"buffers\": -3", "buffers of workload 'small' are -3"},
        Fault{"65536", "\"64 KiB\"", "activation_bytes: expected an integer"},
        Fault{"65536", "-1", "activation_bytes of layer 0"},
        Fault{"\"version\": 4", "\"version\": \"1\"", "version: expected an integer"},
        Fault{"\"update_seconds\": 0.001,", "", "f.json: update_seconds: missing"},
        Fault{"\"name\": \"small\"", "\"name\": null", "name: expected a string"},
        Fault{"\"name\": \"small\"", "\"name\": \"s\", \"ranks\": 4", "f.json: ranks: unknown"},
        Fault{"\"dtype\": \"bf16\"", "\"dtype\": \"bf16\", \"size\": 1", "tensors[1].size: unknown"},
        Fault{"\"dtype\": \"bf16\"", "\"dtype\": \"half\"", "tensors[1].dtype: unknown"},
        Fault{"4096", "4096.0", "tensors[0].elements: "},
        Fault{"4096", "9223372036854775808", "tensors[0].elements: "},
        Fault{"\"head.bias\"", "\"embedding.weight\"",
              "f.json: tensors[0] and tensors[1] are both named 'embedding.weight'"},
        Fault{"4096", "-1", "'embedding.weight') has -1"},
        Fault{"[0]", "0", "layers[0].tensors: expected an array"},
        Fault{"[0]", "[-1]", "layers[0].tensors[0]: "},
        Fault{"[0]", "[4294967296]", "layers[0].tensors[0]: "},
        Fault{"[1, 0]", "[1, true]", "layers[1].tensors[1]: "},
        Fault{"[1, 0]", "[1, 2]", "layer 1 ('head') lists tensor 2"},
        Fault{"[1, 0]", "[1, 1]", "tensor 1 ('head.bias') twice"},
        Fault{"0.0001", "\"fast\"", "forward_seconds: expected a number"},
        Fault{"0.0001", "-0.5", "forward_seconds of layer 0"},
        Fault{"{\"name\": \"head\"", "[], {\"name\": \"head\"", "layers[1]: expected an object"}));

}  // namespace
}  // namespace dear::workload_file_test
