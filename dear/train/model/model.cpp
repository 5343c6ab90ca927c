#include "dear/train/model/model.h"

#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <torch/nn/module.h>

#include "dear/base/vocabulary/error.h"

namespace dear {

namespace {

std::vector<Model::Named> buffers_of(const torch::nn::Module& module) {
  std::vector<Model::Named> buffers;
  for (const auto& item : module.named_buffers()) buffers.push_back({item.key(), item.value()});
  return buffers;
}

}  // namespace

Model model_of(const torch::nn::Module& module) {
  Model model{.parameters = {}, .buffers = buffers_of(module)};
  for (const auto& item : module.named_parameters()) model.parameters.push_back({item.key(), item.value()});
  return model;
}

Model live_model_of(const torch::nn::Module& module) {
  Model model = model_of(module);
  model.buffers_now = [&module] { return buffers_of(module); };
  return model;
}

std::string parameter_digest(const torch::nn::Module& module) { return parameter_digest(model_of(module)); }

std::string parameter_digest(const Model& model) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  const auto require = [](int result) {
    if (result != 1) throw ConfigError("OpenSSL cannot compute SHA-256 here: check its installation");
  };
  require(context ? EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) : 0);

  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model.parameters) {
    // clone() is an operator: it waits for a parameter that is still on the wire.
    const torch::Tensor values = tensor.detach().clone(at::MemoryFormat::Contiguous).cpu();
    const std::string header = fmt::format("{} [{}] {}\n", name, fmt::join(values.sizes(), ", "),
                                           c10::toString(values.scalar_type()));
    require(EVP_DigestUpdate(context.get(), header.data(), header.size()));
    require(EVP_DigestUpdate(context.get(), values.data_ptr(), values.nbytes()));
  }

  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  require(EVP_DigestFinal_ex(context.get(), bytes, &length));
  return fmt::format("{:02x}", fmt::join(bytes, bytes + length, ""));
}

}  // namespace dear
