#include "dear/systems/train_command/profile_run.h"

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include "dear/base/vocabulary/error.h"
#include "dear/workload/layers/workload_file.h"

namespace dear::train_command::profile_run_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

using Names = std::vector<std::string>;

// TorchScript as Python would write it: classes of one compilation unit.
class Script {
 public:
  torch::jit::Module module(const std::string& type, const std::string& source) {
    torch::jit::Module made("__torch__." + type, unit_);
    made.register_attribute("training", c10::BoolType::get(), false);
    if (!source.empty()) sources_.emplace_back(made, source);
    return made;
  }
  torch::jit::Module linear(const std::string& type, std::int64_t in, std::int64_t out) {
    torch::jit::Module made =
        module(type, "def forward(self, x):\n  return torch.addmm(self.bias, x, torch.t(self.weight))\n");
    parameter(made, "weight", torch::randn({out, in}));
    parameter(made, "bias", torch::randn({out}));
    return made;
  }
  static void parameter(torch::jit::Module& module, const std::string& name, torch::Tensor tensor) {
    module.register_parameter(name, tensor.set_requires_grad(true), /*is_buffer=*/false);
  }
  // Compiles children before what calls them: `made` in the order of their module().
  std::string save(const torch::jit::Module& root) {
    for (auto& [module, source] : sources_) module.define(source);
    sources_.clear();
    const std::string path =
        ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".pt";
    root.save(path);
    return path;
  }

 private:
  std::shared_ptr<torch::jit::CompilationUnit> unit_ = std::make_shared<torch::jit::CompilationUnit>();
  std::vector<std::pair<torch::jit::Module, std::string>> sources_;
};

ProfileSettings settings_of(const std::string& path, const Names& inputs) {
  ProfileSettings settings{.model = path, .optimizer = "sgd", .warm_up = 1, .steps = 3};
  for (const std::string& input : inputs) settings.inputs.push_back(parse_model_input(input));
  return settings;
}

Workload workload_of(const std::string& path, const Names& inputs) {
  return profile(settings_of(path, inputs)).workload;
}

Names layers_of(const Workload& workload) {
  Names names;
  for (const Layer& layer : workload.layers) names.push_back(layer.name);
  return names;
}

Names tensors_of(const Workload& workload) {
  Names names;
  for (const Tensor& tensor : workload.tensors) names.push_back(tensor.name);
  return names;
}

template <typename Refused>
std::string refusal_of(Refused refused) {
  try {
    refused();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "taken";
}

// Three layers in a chain, registered in another order than used.
std::string write_chain(const std::string& forward =
                            "def forward(self, x):\n"
                            "  return self.last.forward(torch.relu(self.middle.forward(torch.relu("
                            "self.first.forward(x)))))\n") {
  Script script;
  const torch::jit::Module last = script.linear("Last", 24, 3), middle = script.linear("Middle", 20, 24),
                           first = script.linear("First", 16, 20);
  torch::jit::Module root = script.module("Chain", forward);
  root.register_module("last", last);
  root.register_module("middle", middle);
  root.register_module("first", first);
  return script.save(root);
}

TEST(Profile, LayersStandInTheOrderOfTheirUse) {
  const Workload workload = workload_of(write_chain(), {"8x16"});
  EXPECT_THAT(layers_of(workload), ElementsAre("first", "middle", "last"));
  EXPECT_THAT(tensors_of(workload), UnorderedElementsAre("first.weight", "first.bias", "middle.weight",
                                                         "middle.bias", "last.weight", "last.bias"));
  for (const Tensor& tensor : workload.tensors) {
    EXPECT_EQ(tensor.dtype, DType::f32);
    if (tensor.name != "middle.weight") continue;
    EXPECT_EQ(tensor.elements, 20 * 24);
  }
  for (const Layer& layer : workload.layers) {
    EXPECT_EQ(layer.tensors.size(), 2);
    EXPECT_GT(layer.forward_seconds, 0) << layer.name;
    EXPECT_GT(layer.backward_seconds, 0) << layer.name;
  }
  EXPECT_GT(workload.update_seconds, 0);
}

// The interpreter keeps what it has fetched for a later operator on the same stack as the inputs of this one.
TEST(Profile, AParameterThatIsFetchedEarlyIsUsedLate) {
  Script script;
  const torch::jit::Module first = script.linear("First", 16, 20);
  torch::jit::Module root = script.module(
      "Early", "def forward(self, x):\n  return torch.add(self.shift, self.first.forward(x))\n");
  Script::parameter(root, "shift", torch::randn({20}));
  root.register_module("first", first);
  EXPECT_THAT(layers_of(workload_of(script.save(root), {"8x16"})), ElementsAre("first", "(root)"));
}

TEST(Profile, AHeavyLayerIsSeenToBeHeavy) {
  Script script;
  const torch::jit::Module light = script.linear("Light", 16, 16), heavy = script.linear("Heavy", 16, 16);
  torch::jit::Module root = script.module("Uneven",
                                          "def forward(self, x):\n"
                                          "  x = self.light.forward(x)\n"
                                          "  x = self.heavy.forward(x)\n"
                                          "  for i in range(400):\n"
                                          "    x = torch.tanh(x)\n"
                                          "  return x\n");
  root.register_module("light", light);
  root.register_module("heavy", heavy);
  ProfileSettings settings = settings_of(script.save(root), {"64x16"});
  settings.steps = 11;  // of which most are as they should be on a busy machine, too
  const Workload workload = profile(settings).workload;
  ASSERT_THAT(layers_of(workload), ElementsAre("light", "heavy"));
  EXPECT_GT(workload.layers[1].forward_seconds, workload.layers[0].forward_seconds);
  EXPECT_GT(workload.layers[1].backward_seconds, workload.layers[0].backward_seconds);
}

// 8 samples through 16 -> 20 -> 24 -> 3: each product has two gradients, but that of the input of the first
// is not asked for.
TEST(Profile, CountsProducts) {
  const ModelProfile measured = profile(settings_of(write_chain(), {"8x16"}));
  const double first = 2 * 8 * 16 * 20, middle = 2 * 8 * 20 * 24, last = 2 * 8 * 24 * 3;
  EXPECT_DOUBLE_EQ(measured.flops, 2 * first + 3 * middle + 3 * last);
  EXPECT_THAT(measured.workload.device, HasSubstr("cpu, "));
}

// 2 images of 8 x 8, 3 channels to 4 by windows of 3 x 3: 27 products for each result; the gradient of the
// weight alone.
TEST(Profile, CountsConvolutions) {
  Script script;
  torch::jit::Module root = script.module(
      "Convolution", "def forward(self, x):\n  return torch.conv2d(x, self.weight, None, [1, 1], [1, 1])\n");
  Script::parameter(root, "weight", torch::randn({4, 3, 3, 3}));
  EXPECT_DOUBLE_EQ(profile(settings_of(script.save(root), {"2x3x8x8"})).flops,
                   2.0 * 2 * (2 * 4 * 8 * 8) * 27);
}

// This is there after the forward pass: at least what each product and each rectifier made.
TEST(Profile, MeasuresWhatForwardKeeps) {
  std::int64_t kept = 0;
  for (const Layer& layer : workload_of(write_chain(), {"8x16"}).layers) {
    EXPECT_GE(layer.activation_bytes, 0);
    kept += layer.activation_bytes;
  }
  EXPECT_GE(kept, 8 * (20 + 24 + 3) * 4);
  EXPECT_LE(kept, 4 * 8 * (20 + 24 + 3) * 4 + 4096);
}

// Small kernels take their launches, and the update what its bytes take.
TEST(Profile, OfAnotherDeviceIsByItsRoofline) {
  ProfileSettings settings = settings_of(write_chain(), {"8x16"});
  settings.device = "a100";
  settings.dtype = DType::bf16;
  const Workload workload = profile(settings).workload;
  EXPECT_EQ(workload.device, "a100");
  for (const Tensor& tensor : workload.tensors) EXPECT_EQ(tensor.dtype, DType::bf16);
  for (const Layer& layer : workload.layers) {
    EXPECT_GE(layer.forward_seconds, 5e-6) << layer.name;
    EXPECT_LT(layer.forward_seconds, 25e-6) << layer.name;
    EXPECT_GE(layer.backward_seconds, 10e-6) << layer.name;  // two products
    EXPECT_LT(layer.backward_seconds, 100e-6) << layer.name;
  }
  EXPECT_GT(workload.update_seconds, 5e-6);
  EXPECT_LT(workload.update_seconds, 6e-6);
}

TEST(Profile, WritesWhatReadsBack) {
  Workload workload = workload_of(write_chain(), {"8x16"});
  workload.name = "chain";
  const Workload again = parse_workload(to_json(workload), "chain.json");
  EXPECT_EQ(tensors_of(again), tensors_of(workload));
  EXPECT_EQ(layers_of(again), layers_of(workload));
}

TEST(Profile, ATiedTensorStandsThereOnce) {
  Script script;
  torch::jit::Module embedding = script.module(
      "Embedding", "def forward(self, x):\n  return torch.embedding(self.weight, x, -1, False, False)\n");
  torch::jit::Module head =
      script.module("Head", "def forward(self, x):\n  return torch.matmul(x, torch.t(self.weight))\n");
  const torch::Tensor tied = torch::randn({50, 12});
  Script::parameter(embedding, "weight", tied);
  Script::parameter(head, "weight", tied);
  const torch::jit::Module between = script.linear("Between", 12, 12);
  torch::jit::Module root = script.module(
      "Tied",
      "def forward(self, x):\n"
      "  return self.head.forward(self.between.forward(torch.flatten(self.embedding.forward(x), 0, 1)))\n");
  root.register_module("embedding", embedding);
  root.register_module("between", between);
  root.register_module("head", head);
  const Workload workload = workload_of(script.save(root), {"4x6:int64"});
  EXPECT_THAT(layers_of(workload), ElementsAre("embedding", "between"));
  EXPECT_EQ(tensors_of(workload).size(), 3);
  EXPECT_EQ(tensors_of(workload).front(), "embedding.weight");
  EXPECT_EQ(workload.tensors.front().elements, 50 * 12);
}

TEST(Profile, CountsBuffersAndSaysWhatIsNotTrained) {
  Script script;
  torch::jit::Module root = script.module("Mixed",
                                          "def forward(self, x):\n"
                                          "  return x * self.used * self.frozen + self.mean\n");
  Script::parameter(root, "used", torch::randn({16}));
  Script::parameter(root, "spare", torch::randn({5}));
  root.register_parameter("frozen", torch::randn({16}), false);
  root.register_parameter("mean", torch::randn({16}), /*is_buffer=*/true);
  const ModelProfile measured = profile(settings_of(script.save(root), {"8x16"}));
  EXPECT_THAT(tensors_of(measured.workload), UnorderedElementsAre("used", "spare"));
  EXPECT_EQ(measured.workload.buffer_bytes, 64);
  EXPECT_EQ(measured.workload.buffers, 1);
  EXPECT_EQ(measured.frozen_parameters, 16);
  EXPECT_EQ(measured.tensors_without_gradient, 1);
  // [Note: unused parameters] of DataParallel: first, so that they hold up no other.
  EXPECT_THAT(layers_of(measured.workload), ElementsAre("(root)", "(root)"));
  EXPECT_EQ(measured.workload.tensors.front().name, "spare");
  EXPECT_EQ(measured.workload.layers.front().forward_seconds, 0);
}

TEST(Profile, TakesOutputsOutOfTuplesListsAndDicts) {
  for (const std::string result : {"(x, a)", "[a, x]", "{\"x\": x, \"a\": a}", "(x, [a], {\"a\": a})",
                                   "(torch.argmax(a), torch.sum(a))"}) {
    const std::string path = write_chain(
        "def forward(self, x):\n"
        "  a = self.last.forward(self.middle.forward(self.first.forward(x)))\n"
        "  return " +
        result + "\n");
    const Workload workload = workload_of(path, {"8x16"});
    EXPECT_THAT(layers_of(workload), ElementsAre("first", "middle", "last")) << result;
    for (const Layer& layer : workload.layers) EXPECT_GT(layer.backward_seconds, 0) << result;
  }
}

TEST(Profile, EveryOptimizerAndSpreadsInOrder) {
  const std::string path = write_chain();
  for (const char* const optimizer : {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lamb"}) {
    ProfileSettings settings = settings_of(path, {"8x16"});
    settings.optimizer = optimizer;
    const ModelProfile measured = profile(settings);
    for (const Spread& spread : {measured.recorded_step_seconds, measured.plain_step_seconds}) {
      EXPECT_GT(spread.p10, 0) << optimizer;
      EXPECT_LE(spread.p10, spread.median) << optimizer;
      EXPECT_LE(spread.median, spread.p90) << optimizer;
    }
    EXPECT_EQ(measured.update_seconds.median, measured.workload.update_seconds);
    EXPECT_EQ(measured.forward_seconds.median, measured.workload.forward_seconds());
    EXPECT_GT(measured.backward_seconds.p10, 0);
  }
}

TEST(Profile, RefusesInputsThatForwardDoesNotTake) {
  const std::string path = write_chain();
  EXPECT_THAT(refusal_of([&] { workload_of(path, {}); }),
              AllOf(HasSubstr("takes 1 tensor (x), and 0 --input were given")));
  EXPECT_THAT(refusal_of([&] { workload_of(path, {"8x16", "4"}); }), HasSubstr("and 2 --input were given"));
  EXPECT_THAT(refusal_of([&] { workload_of(path, {"8x15"}); }),
              AllOf(HasSubstr(path), HasSubstr("8x15 and 16x20"), Not(HasSubstr("\n"))));
  EXPECT_THAT(refusal_of([&] { workload_of(path, {"8x16:int64"}); }),
              HasSubstr("does not take these inputs"));
}

TEST(Profile, RefusesWhatCannotBeTrained) {
  Script script;
  torch::jit::Module bare = script.module("Bare", "def forward(self, x):\n  return x * 2\n");
  EXPECT_THAT(refusal_of([&] { workload_of(script.save(bare), {"8"}); }), HasSubstr("has no parameters"));

  torch::jit::Module frozen = script.module("Frozen", "def forward(self, x):\n  return x * self.w\n");
  frozen.register_parameter("w", torch::randn({8}), false);
  EXPECT_THAT(refusal_of([&] { workload_of(script.save(frozen), {"8"}); }),
              HasSubstr("no parameter of the module"));

  torch::jit::Module cut = script.module("Cut", "def forward(self, x):\n  return (x * self.w).detach()\n");
  Script::parameter(cut, "w", torch::randn({8}));
  EXPECT_THAT(refusal_of([&] { workload_of(script.save(cut), {"8"}); }), HasSubstr("no output"));

  torch::jit::Module silent = script.module("Silent", "");
  Script::parameter(silent, "w", torch::randn({8}));
  EXPECT_THAT(refusal_of([&] { workload_of(script.save(silent), {"8"}); }), HasSubstr("has no forward"));

  torch::jit::Module number =
      script.module("Number", "def forward(self, x, times: int):\n  return x * self.w * times\n");
  Script::parameter(number, "w", torch::randn({8}));
  EXPECT_THAT(refusal_of([&] { workload_of(script.save(number), {"8", "1:int64"}); }),
              HasSubstr("takes 'times' as int"));
}

TEST(Profile, RangeOfIntegersIsToBeBelowTheRowsOfAnEmbedding) {
  Script script;
  torch::jit::Module root = script.module(
      "Rows", "def forward(self, x):\n  return torch.embedding(self.weight, x, -1, False, False)\n");
  Script::parameter(root, "weight", torch::randn({3, 4}));
  ProfileSettings settings = settings_of(script.save(root), {"64:int64"});
  settings.range = 3;
  EXPECT_EQ(profile(settings).workload.tensors.front().elements, 12);
  settings.range = 300;
  EXPECT_THAT(refusal_of([&] { profile(settings); }), HasSubstr("--range"));
}

TEST(Profile, RefusesWhatIsNoTorchScript) {
  EXPECT_THAT(refusal_of([&] { workload_of("/no/such/model.pt", {}); }),
              HasSubstr("cannot open '/no/such/model.pt': No such file or directory"));
  const std::string path = ::testing::TempDir() + "text.pt";
  std::ofstream(path) << "not a model\n";
  EXPECT_THAT(refusal_of([&] { workload_of(path, {}); }),
              AllOf(HasSubstr("'" + path + "' is no TorchScript"), HasSubstr("torch.jit.save"),
                    Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace dear::train_command::profile_run_test
