#include "dear/methods/pipeline/operators.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/pipeline/models_in_test.h"
#include "dear/methods/pipeline/zoo_operators.h"

namespace dear::methods::pipeline::operators_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> names_of(const OperatorDag& dag, const std::vector<OperatorId>& ids) {
  std::vector<std::string> names;
  for (const OperatorId id : ids) names.push_back(dag[id].name);
  return names;
}

TEST(Operators, StandInATopologicalOrder) {
  const OperatorDag dag("m", {{.name = "d", .inputs = {1, 2}},
                              {.name = "b", .inputs = {3}},
                              {.name = "c", .inputs = {3}},
                              {.name = "a", .parameter_bytes = 8},
                              {.name = "e", .inputs = {0}, .tied = 3}});
  EXPECT_THAT(names_of(dag, {0, 1, 2, 3, 4}), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(dag.users(0), ElementsAre(1, 2));
  EXPECT_THAT(dag[3].inputs, ElementsAre(1, 2));
  EXPECT_EQ(dag[4].tied, 0U);
  EXPECT_EQ(dag.find("d"), 3U);
  EXPECT_THAT([&] { (void)dag.find("x"); }, ThrowsMessage<ConfigError>(HasSubstr("no operator 'x'")));
}

// A skip from a to d and a branch to b and c: each output crosses a cut once.
TEST(Operators, CrossACutOnceHoweverManyReadThem) {
  const OperatorDag dag("m", {{.name = "a", .output_bytes = 8},
                              {.name = "b", .inputs = {0}, .output_bytes = 16, .dtype = DType::i64},
                              {.name = "c", .inputs = {0, 1}, .output_bytes = 4},
                              {.name = "d", .inputs = {0, 1, 2}, .output_bytes = 4}});
  EXPECT_THAT(names_of(dag, dag.crossing(1)), ElementsAre("a"));
  EXPECT_THAT(names_of(dag, dag.crossing(2)), ElementsAre("a", "b"));
  EXPECT_THAT(names_of(dag, dag.crossing(3)), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(dag.crossing(0).empty() && dag.crossing(4).empty());
  std::vector<std::int64_t> bytes, gradients;
  for (std::size_t cut = 0; cut <= 4; ++cut) {
    bytes.push_back(dag.crossing_bytes(cut));
    gradients.push_back(dag.gradient_bytes(cut));
  }
  EXPECT_THAT(bytes, ElementsAre(0, 8, 24, 28, 0));
  EXPECT_THAT(gradients, ElementsAre(0, 8, 8, 12, 0));
}

void expect_refused(std::vector<Operator> operators, const std::string& message) {
  EXPECT_THAT([&] { OperatorDag("m", operators); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
}

TEST(Operators, AreRefusedWithOneSentence) {
  expect_refused({}, "a model needs an operator");
  expect_refused({{.name = ""}}, "has no name");
  expect_refused({{.name = "a"}, {.name = "a"}}, "two operators are named 'a'");
  expect_refused({{.name = "a", .forward_work = kNan}}, "the forward of operator 'a' takes nan operations");
  expect_refused({{.name = "a", .forward_work = -1}}, "measure or count it");
  expect_refused({{.name = "a", .weight_gradient_work = HUGE_VAL}}, "the weight gradient of operator 'a'");
  expect_refused({{.name = "a", .input_gradient_work = kNan}}, "the input gradient of operator 'a'");
  expect_refused({{.name = "a", .parameter_bytes = -4}}, "operator 'a' has -4 bytes of parameters");
  expect_refused({{.name = "a", .output_bytes = -4}}, "bytes of output");
  expect_refused({{.name = "a", .kept_bytes = std::int64_t{1} << 60}}, "bytes of kept activations");
  expect_refused({{.name = "a", .kept_bytes = std::int64_t{1} << 50}, {.name = "b", .output_bytes = 4}},
                 "all operators together");
  expect_refused({{.name = "a", .forward_work = 1e30}, {.name = "b", .forward_work = 1e30}},
                 "1e30 operations can be planned");
  expect_refused(std::vector<Operator>(5001), "a model of 5001 operators is too large");
  expect_refused({{.name = "a", .output_bytes = 6}}, "no whole number of fp32 elements");
  expect_refused({{.name = "a", .inputs = {3}}}, "operator 'a' names operator 3, but there are 1");
  expect_refused({{.name = "a"}, {.name = "b", .inputs = {0, 0}}}, "lists its input 'a' twice");
  expect_refused({{.name = "a"}, {.name = "b", .inputs = {0}, .tied = 0}},
                 "is tied to the parameters of 'a'");
  expect_refused({{.name = "a", .inputs = {1}}, {.name = "b", .inputs = {0}}}, "in a circle");
  expect_refused({{.name = "a", .inputs = {0}}}, "operator 'a' waits for itself");
  expect_refused({{.name = "a"}, {.name = "b"}, {.name = "c", .inputs = {0}}},
                 "nothing connects operator 'b' with 'a'");
}

TEST(Operators, HaveADigestOfAllButWork) {
  std::vector<Operator> operators = chain_of(3, 1, 8);
  const std::uint64_t digest = OperatorDag("m", operators).digest();
  operators[1].forward_work = 2;
  EXPECT_EQ(OperatorDag("m", operators).digest(), digest);
  operators[1].output_bytes = 12;
  EXPECT_NE(OperatorDag("m", operators).digest(), digest);
  operators = chain_of(3, 1, 8);
  operators[2].inputs.push_back(0);
  EXPECT_NE(OperatorDag("m", operators).digest(), digest);
}

TEST(OperatorsFile, IsWrittenAndReadAsItIs) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 20; ++trial) {
    const OperatorDag dag = random_dag(random, 12);
    const OperatorDag read = parse_operators(to_json(dag), "x");
    EXPECT_EQ(read.operators(), dag.operators());
    EXPECT_EQ(read.digest(), dag.digest());
  }
  const std::string path = testing::TempDir() + "operators.json";
  const OperatorDag dag = operators_of(zoo::find_model("gpt2"));
  write_operators(dag, path);
  EXPECT_EQ(read_operators(path).operators(), dag.operators());
  std::filesystem::remove(path);
}

constexpr const char* kTwo = R"({"format": "dear-operators", "version": 1, "name": "two", "operators": [
  {"name": "second", "inputs": ["first"], "forward_work": 5, "parameter_bytes": 0, "output_bytes": 4},
  {"name": "first", "kind": "matmul", "inputs": [], "forward_work": 7, "parameter_bytes": 4, "output_bytes": 8}]})";

TEST(OperatorsFile, LeavesOutWhatIsUsual) {
  const OperatorDag dag = parse_operators(kTwo, "x");
  EXPECT_EQ(dag[0], (Operator{.name = "first",
                              .kind = "matmul",
                              .forward_work = 7,
                              .weight_gradient_work = 7,
                              .parameter_bytes = 4,
                              .output_bytes = 8,
                              .kept_bytes = 8}));
  EXPECT_EQ(dag[1], (Operator{.name = "second",
                              .inputs = {0},
                              .forward_work = 5,
                              .input_gradient_work = 5,
                              .output_bytes = 4,
                              .kept_bytes = 4}));
}

TEST(OperatorsFile, IsRefusedWithThePlace) {
  const auto refused = [](const std::string& replaced, const std::string& by, const std::string& message) {
    std::string text = kTwo;
    text.replace(text.find(replaced), replaced.size(), by);
    EXPECT_THAT([&] { parse_operators(text, "o.json"); },
                ThrowsMessage<ConfigError>(AllOf(StartsWith("o.json: "), HasSubstr(message))));
  };
  refused("[\"first\"]", "[\"frist\"]", "operators[0].inputs[0]: there is no operator 'frist'");
  refused("\"second\"", "\"first\"", "operators[1].name: two operators have this name");
  refused("\"forward_work\": 5, ", "", "operators[0].forward_work: missing: add it");
  refused("\"forward_work\": 5", "\"forward_work\": null", "expected a number, found null");
  refused("\"inputs\": []", "\"inputs\": [\"second\"]", "in a circle");
  refused("[\"first\"]", "[]", "nothing connects");
}

// Sums over layers, which know nothing of edges.
TEST(ZooOperators, HaveTheParametersAndWorkOfTheirLayers) {
  for (const char* name :
       {"gpt2", "gpt2-medium", "gpt2-xl", "resnet18", "resnet50", "resnet101", "resnet152"}) {
    const zoo::Model& model = zoo::find_model(name);
    const zoo::Architecture architecture = model.make(model.size);
    const OperatorDag dag = operators_of(model, {.batch = 4, .micro_batches = 2});
    ASSERT_EQ(dag.size(), architecture.layers.size()) << name;
    std::int64_t parameters = 0, kept = 0;
    double forward = 0, products = 0;
    for (OperatorId id = 0; id < dag.size(); ++id) {
      const Operator& op = dag[id];
      parameters += op.parameter_bytes;
      kept += op.kept_bytes;
      forward += op.forward_work;
      if (op.kind == "matmul" || op.kind == "convolution") products += op.weight_gradient_work;
      EXPECT_EQ(op.name, architecture.layers[id].name);
      EXPECT_GE(op.input_gradient_work, 0) << op.name;
    }
    const auto bytes = static_cast<std::int64_t>(size_of(model.dtype));
    EXPECT_EQ(parameters, architecture.parameters() * bytes) << name;
    EXPECT_EQ(kept, 2 * (architecture.kept_elements() * bytes + architecture.kept_bytes())) << name;
    EXPECT_GE(forward, 2 * architecture.forward_flops());
    double matrices = 0;  // two operations for each element and place
    for (const zoo::Architecture::Layer& layer : architecture.layers)
      if (layer.matrix) {
        const bool has_bias = layer.parameters.size() > 1;
        matrices += 2.0 * static_cast<double>((layer.matrix->inputs - (has_bias ? 1 : 0)) *
                                              layer.matrix->outputs * layer.matrix->positions);
      }
    if (name[0] == 'r') {
      EXPECT_DOUBLE_EQ(products, 2 * matrices) << name;
    }
  }
}

// Between two blocks only the residual stream crosses; inside one also its input, where the sum is yet to
// come.
TEST(ZooOperators, HaveResidualConnectionsAsEdges) {
  const OperatorDag gpt =
      operators_of(zoo::find_model("gpt2"), {.batch = 3, .size = 64, .dtype = DType::f32});
  const std::int64_t stream = 3 * 64 * 768 * 4;
  const auto crossing = [](const OperatorDag& dag, const std::string& last) {
    return names_of(dag, dag.crossing(dag.find(last) + 1));
  };
  EXPECT_THAT(crossing(gpt, "transformer.h.3.mlp.c_proj"), ElementsAre("transformer.h.3.mlp.c_proj"));
  EXPECT_THAT(crossing(gpt, "transformer.h.3.ln_1"),
              ElementsAre("transformer.h.2.mlp.c_proj", "transformer.h.3.ln_1"));
  EXPECT_THAT(crossing(gpt, "transformer.h.3.mlp.c_fc"),
              ElementsAre("transformer.h.3.attn.c_proj", "transformer.h.3.mlp.c_fc"));
  EXPECT_EQ(gpt.crossing_bytes(gpt.find("transformer.h.0.ln_1")), stream);
  EXPECT_EQ(gpt.crossing_bytes(gpt.find("transformer.h.3.mlp.c_proj")), 5 * stream);
  EXPECT_EQ(gpt[gpt.find("lm_head")].tied, gpt.find("transformer.wte"));
  EXPECT_TRUE(gpt[gpt.find("transformer.wte")].picks_rows);
  EXPECT_FALSE(gpt[gpt.find("lm_head")].picks_rows);
  EXPECT_EQ(gpt[static_cast<OperatorId>(gpt.size() - 1)].output_bytes, 4);  // the loss

  const OperatorDag resnet = operators_of(zoo::find_model("resnet50"), {.batch = 2});
  EXPECT_THAT(crossing(resnet, "layer1.0.downsample.1"), ElementsAre("layer1.0.downsample.1"));
  EXPECT_THAT(crossing(resnet, "layer1.0.bn3"), ElementsAre("bn1", "layer1.0.bn3"));
  EXPECT_THAT(crossing(resnet, "layer1.1.conv1"), ElementsAre("layer1.0.downsample.1", "layer1.1.conv1"));
  EXPECT_THAT(crossing(resnet, "layer4.2.bn3"), ElementsAre("layer4.2.bn3"));
  EXPECT_EQ(resnet.crossing_bytes(resnet.find("conv1") + 1), 2 * 64 * 112 * 112 * 4);
  EXPECT_EQ(resnet.crossing_bytes(resnet.find("bn1") + 1), 2 * 64 * 56 * 56 * 4);  // pooled
  EXPECT_EQ(resnet.crossing_bytes(resnet.find("layer2.1.bn3") + 1), 2 * 512 * 28 * 28 * 4);
  EXPECT_EQ(resnet.crossing_bytes(resnet.find("fc")), 2 * 2048 * 4);
  const OperatorDag basic = operators_of(zoo::find_model("resnet18"), {.batch = 1});
  EXPECT_THAT(crossing(basic, "layer1.1.conv2"), ElementsAre("layer1.0.bn2", "layer1.1.conv2"));
}

TEST(ZooOperators, AreRefusedWithOneSentence) {
  EXPECT_THAT([] { operators_of(zoo::find_model("vgg16")); },
              ThrowsMessage<ConfigError>(HasSubstr("take a GPT-2 or ResNet")));
  EXPECT_THAT([] { operators_of(zoo::find_model("gpt2-s-moe")); },
              ThrowsMessage<ConfigError>(HasSubstr("'gpt2-s-moe'")));
  EXPECT_THAT([] { operators_of(zoo::find_model("gpt2"), {.batch = 6, .micro_batches = 4}); },
              ThrowsMessage<ConfigError>(HasSubstr("a batch of 6 cannot be divided into 4 micro-batches")));
  EXPECT_THAT([] { samples_of_micro_batch(8, 0); }, ThrowsMessage<ConfigError>(HasSubstr("0 micro-batches")));
  EXPECT_THAT([] { samples_of_micro_batch(2, 4); }, ThrowsMessage<ConfigError>(HasSubstr("a batch of 2")));
}

}  // namespace
}  // namespace dear::methods::pipeline::operators_test
