#include "dear/workload/zoo/models.h"

#include "dear/base/vocabulary/nearest.h"
#include "dear/workload/zoo/families.h"

namespace dear::zoo {
namespace {

constexpr std::string_view kResNet = "He et al. 2016, arXiv 1512.03385";
constexpr std::string_view kBert = "Devlin et al. 2019, arXiv 1810.04805";
constexpr std::string_view kGpt2 = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners";

// Rates of the study's device, from its one-GPU iterations. Shares of forward are published for ResNet-50 and
// DenseNet-201; a third is usual.
Measurement in_study(double milliseconds, double forward_share = 1.0 / 3) {
  return {.device = "rtx2080ti", .seconds = milliseconds * 1e-3, .forward_share = forward_share};
}

template <Transformer kShape>
Architecture make_bert(std::int64_t length) {
  return bert(kShape, length);
}

template <Transformer kShape>
Architecture make_gpt2(std::int64_t length) {
  return gpt2(kShape, length);
}

template <Transformer kShape>
Architecture make_llama(std::int64_t length) {
  return llama(kShape, length);
}

template <ResNet kShape>
Architecture make_resnet(std::int64_t side) {
  return resnet(kShape, side);
}

Architecture make_densenet201(std::int64_t side) { return densenet({.blocks = {6, 12, 48, 32}}, side); }

Architecture make_vit_l(std::int64_t side) {
  return vit({.layers = 24, .width = 1024, .heads = 16, .inner_width = 4096}, 16, side);
}

constexpr Transformer gpt2_shape(std::int64_t layers, std::int64_t width) {
  return {.layers = layers, .width = width, .heads = width / 64, .inner_width = 4 * width};
}

constexpr ResNet bottlenecks(std::int64_t third_stage, std::int64_t second_stage = 4) {
  return {.block = ResidualBlock::bottleneck, .blocks = {3, second_stage, third_stage, 3}};
}

}  // namespace

const std::vector<Model>& models() {
  static const std::vector<Model> kTable = {
      {.name = "resnet50",
       .summary = "ResNet-50, 25.6 million parameters, images",
       .source = kResNet,
       .make = make_resnet<bottlenecks(6)>,
       .size = 224,
       .batch = 64,
       .measured = in_study(229.4, 0.31)},
      {.name = "densenet201",
       .summary = "DenseNet-201, 20.0 million parameters in 604 tensors, images",
       .source = "Huang et al. 2017, arXiv 1608.06993",
       .make = make_densenet201,
       .size = 224,
       .batch = 32,
       .measured = in_study(212.5, 0.35)},
      {.name = "inception-v4",
       .summary = "Inception-v4, 42.7 million parameters, images",
       .source = "Szegedy et al. 2017, arXiv 1602.07261",
       .make = inception_v4,
       .size = 224,
       .batch = 64,
       .measured = in_study(353.2)},
      {.name = "bert-base",
       .summary = "BERT-Base with its pre-training heads, 110 million parameters",
       .source = kBert,
       .make = make_bert<Transformer{.layers = 12, .width = 768, .heads = 12, .inner_width = 3072}>,
       .size = 64,
       .batch = 64,
       .dtype = DType::bf16,
       .measured = in_study(292.1)},
      {.name = "bert-large",
       .summary = "BERT-Large with its pre-training heads, 336 million parameters",
       .source = kBert,
       .make = make_bert<Transformer{.layers = 24, .width = 1024, .heads = 16, .inner_width = 4096}>,
       .size = 64,
       .batch = 32,
       .dtype = DType::bf16,
       .measured = in_study(422.2)},
      {.name = "resnet18",
       .summary = "ResNet-18, 11.7 million parameters, images",
       .source = kResNet,
       .make = make_resnet<ResNet{.block = ResidualBlock::basic, .blocks = {2, 2, 2, 2}}>,
       .size = 224,
       .batch = 128,
       .measured = {}},
      {.name = "resnet101",
       .summary = "ResNet-101, 44.5 million parameters, images",
       .source = kResNet,
       .make = make_resnet<bottlenecks(23)>,
       .size = 224,
       .batch = 64,
       .measured = {}},
      {.name = "resnet152",
       .summary = "ResNet-152, 60.2 million parameters, images",
       .source = kResNet,
       .make = make_resnet<bottlenecks(36, 8)>,
       .size = 224,
       .batch = 32,
       .measured = {}},
      {.name = "vgg16",
       .summary = "VGG-16, 138 million parameters, most of them in one tensor, images",
       .source = "Simonyan and Zisserman 2015, arXiv 1409.1556",
       .make = vgg16,
       .size = 224,
       .batch = 64,
       .measured = {}},
      {.name = "gpt2",
       .summary = "GPT-2, 124 million parameters",
       .source = kGpt2,
       .make = make_gpt2<gpt2_shape(12, 768)>,
       .size = 1024,
       .batch = 4,
       .dtype = DType::bf16,
       .measured = {}},
      {.name = "gpt2-medium",
       .summary = "GPT-2 medium, 355 million parameters",
       .source = kGpt2,
       .make = make_gpt2<gpt2_shape(24, 1024)>,
       .size = 1024,
       .batch = 2,
       .dtype = DType::bf16,
       .measured = {}},
      {.name = "gpt2-large",
       .summary = "GPT-2 large, 774 million parameters",
       .source = kGpt2,
       .make = make_gpt2<gpt2_shape(36, 1280)>,
       .size = 1024,
       .batch = 1,
       .dtype = DType::bf16,
       .measured = {}},
      {.name = "gpt2-xl",
       .summary = "GPT-2 XL, 1.56 billion parameters",
       .source = kGpt2,
       .make = make_gpt2<gpt2_shape(48, 1600)>,
       .size = 1024,
       .batch = 1,
       .dtype = DType::bf16,
       .measured = {}},
      {.name = "gpt-1t",
       .summary = "GPT of 1.01 trillion parameters: 128 layers of width 25600",
       .source = "Narayanan et al. 2021, arXiv 2104.04473",
       .make = make_gpt2<Transformer{.layers = 128, .width = 25'600, .heads = 160, .inner_width = 102'400}>,
       .size = 1024,
       .batch = 1,
       .dtype = DType::bf16,
       .measured = {}},
      {.name = "llama-7b",
       .summary = "LLaMA 7B, 6.74 billion parameters",
       .source = "Touvron et al. 2023, arXiv 2302.13971",
       .make = make_llama<Transformer{.layers = 32, .width = 4096, .heads = 32, .inner_width = 11008}>,
       .size = 2048,
       .batch = 1,
       .dtype = DType::bf16,
       .measured = {}},
      {.name = "llama-70b",
       .summary = "Llama 2 70B, 69.0 billion parameters, eight heads of keys for 64 of queries",
       .source = "Touvron et al. 2023, arXiv 2307.09288",
       .make = make_llama<Transformer{
           .layers = 80, .width = 8192, .heads = 64, .inner_width = 28672, .key_heads = 8}>,
       .size = 4096,
       .batch = 1,
       .dtype = DType::bf16,
       .measured = {}},
      {.name = "gnmt",
       .summary = "GNMT, 281 million parameters in eight recurrent layers a side",
       .source = "Wu et al. 2016, arXiv 1609.08144",
       .make = gnmt,
       .size = 50,
       .batch = 128,
       .dtype = DType::bf16,
       .measured = {}},
      {.name = "dlrm",
       .summary = "DLRM, 2.4 million parameters without its embedding tables, which ranks own",
       .source = "Naumov et al. 2019, arXiv 1906.00091",
       .make = dlrm,
       .size = 1,
       .batch = 2048,
       .measured = {}},
      {.name = "vit-l",
       .summary = "ViT-L/16, 304 million parameters, images",
       .source = "Dosovitskiy et al. 2021, arXiv 2010.11929",
       .make = make_vit_l,
       .size = 224,
       .batch = 32,
       .measured = {}},
  };
  return kTable;
}

const Model& find_model(std::string_view name) { return find_named(models(), name, "model"); }

}  // namespace dear::zoo
