#include "dear/workload/zoo/models.h"

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"

namespace dear::zoo::models_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Architecture make(std::string_view name) {
  const Model& model = find_model(name);
  return model.make(model.size);
}

// Elements of each tensor, layer by layer.
using Shapes = std::vector<std::vector<std::int64_t>>;

// Those of tests/data/model_tensors.csv: "ResNet-50,1,batchnorm,64 64".
std::map<std::string, Shapes> published() {
  std::ifstream file(dear::testing::source_file("tests/data/model_tensors.csv"));
  std::string line;
  std::getline(file, line);
  std::map<std::string, Shapes> shapes;
  while (std::getline(file, line)) {
    std::istringstream elements(line.substr(line.rfind(',') + 1));
    shapes[line.substr(0, line.find(','))].emplace_back(std::istream_iterator<std::int64_t>(elements),
                                                        std::istream_iterator<std::int64_t>());
  }
  return shapes;
}

Shapes shapes_of(const Architecture& architecture) {
  Shapes shapes;
  for (const Architecture::Layer& layer : architecture.layers) {
    shapes.emplace_back();
    for (const Architecture::Parameter& parameter : layer.parameters) {
      shapes.back().push_back(parameter.elements);
    }
  }
  return shapes;
}

// The models of arXiv 2302.12445, and how many layers, tensors and parameters they have there.
struct Study {
  const char* name;
  const char* name_in_file;
  std::size_t layers;
  std::int64_t tensors;
  std::int64_t parameters;
};
class ModelOfTheStudy : public ::testing::TestWithParam<Study> {};

TEST_P(ModelOfTheStudy, HasItsTensors) {
  const Architecture architecture = make(GetParam().name);
  EXPECT_EQ(shapes_of(architecture), published().at(GetParam().name_in_file));
  EXPECT_EQ(architecture.layers.size(), GetParam().layers);
  EXPECT_EQ(architecture.tensors(), GetParam().tensors);
  EXPECT_EQ(architecture.parameters(), GetParam().parameters);
}
INSTANTIATE_TEST_SUITE_P(Study, ModelOfTheStudy,
                         ::testing::Values(Study{"resnet50", "ResNet-50", 107, 161, 25'557'032},
                                           Study{"densenet201", "DenseNet-201", 402, 604, 20'013'928},
                                           Study{"inception-v4", "Inception-v4", 299, 449, 42'679'816},
                                           Study{"bert-base", "BERT-Base", 105, 206, 110'111'042},
                                           Study{"bert-large", "BERT-Large", 201, 398, 336'232'258}));

// Parameters as torchvision's weights state them (num_params), or the checkpoints named; tied tensors once.
struct Published {
  const char* name;
  std::int64_t tensors;
  std::int64_t parameters;
};
class PublishedModel : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedModel, HasItsParameters) {
  const Architecture architecture = make(GetParam().name);
  EXPECT_EQ(architecture.tensors(), GetParam().tensors);
  EXPECT_EQ(architecture.parameters(), GetParam().parameters);
}
INSTANTIATE_TEST_SUITE_P(
    Others, PublishedModel,
    ::testing::Values(
        Published{"resnet18", 62, 11'689'512},        // torchvision
        Published{"resnet101", 314, 44'549'160},      // torchvision
        Published{"resnet152", 467, 60'192'808},      // torchvision
        Published{"vgg16", 32, 138'357'544},          // torchvision
        Published{"gpt2", 148, 124'439'808},          // transformers, gpt2
        Published{"gpt2-medium", 292, 354'823'168},   // transformers, gpt2-medium
        Published{"gpt2-large", 436, 774'030'080},    // transformers, gpt2-large
        Published{"gpt2-xl", 580, 1'557'611'200},     // transformers, gpt2-xl
        Published{"llama-7b", 291, 6'738'415'616},    // transformers, Llama-2-7b-hf
        Published{"llama-70b", 723, 68'976'648'192},  // transformers, Llama-2-70b-hf
        Published{"vit-l", 296, 304'326'632},         // torchvision, vit_l_16
        // By the pencil. A recurrent layer of n inputs: 4 · 1024 · (n + 1024) weights and 4096 biases.
        Published{"gnmt", 40, 280'857'856}, Published{"dlrm", 16, 2'368'897},
        // 12 · 128 · 25600² and embeddings of 51,281 rows, biases and norms beside.
        Published{"gpt-1t", 1540, 1'007'988'403'200}));

// Multiply-adds of one image, in thousands of millions, as torchvision's weights state them ("GFLOPS").
// Convolutions and matrix products alone.
TEST(Models, CostWhatTorchvisionSays) {
  for (const auto& [name, billions] : std::map<std::string, double>{{"resnet18", 1.81},
                                                                    {"resnet50", 4.09},
                                                                    {"resnet101", 7.80},
                                                                    {"resnet152", 11.51},
                                                                    {"densenet201", 4.29},
                                                                    {"vgg16", 15.47},
                                                                    {"vit-l", 61.55}}) {
    EXPECT_NEAR(make(name).forward_flops() / 2e9, billions, 0.006 * billions) << name;
  }
}

// https://huggingface.co/timm/inception_v4.tf_in1k: 12.3 thousand million at 299.
TEST(Models, InceptionV4CostsWhatTimmSaysAtItsOwnSize) {
  EXPECT_NEAR(find_model("inception-v4").make(299).forward_flops() / 2e9, 12.3, 0.05);
}

TEST(Models, AreFoundByName) {
  std::set<std::string_view> names;
  for (const Model& model : models()) {
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    EXPECT_EQ(&find_model(model.name), &model);
    EXPECT_FALSE(model.summary.empty() || model.source.empty()) << model.name;
    EXPECT_GT(model.batch, 0) << model.name;
  }
  EXPECT_THAT(
      [] { find_model("resnet"); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("no model 'resnet'"), HasSubstr("resnet50, densenet201"))));
}

}  // namespace
}  // namespace dear::zoo::models_test
