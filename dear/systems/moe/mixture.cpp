#include "dear/systems/moe/mixture.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"
#include "dear/methods/moe/passes.h"
#include "dear/methods/moe/routing.h"
#include "dear/systems/moe/mixture_pass.h"

namespace dear {
namespace {

std::size_t find(const std::vector<std::string>& names, const std::string& name, const char* what) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw ConfigError(
        fmt::format("there is no {} '{}': choose one of {}", what, name, fmt::join(names, ", ")));
  return static_cast<std::size_t>(found - names.begin());
}

std::string text_of(const MixtureOptions& options) {
  return fmt::format(
      "width {}, hidden {}, {} experts, gate {}, capacity factor {}, {} parts, overlap {}, seed {}",
      options.width, options.hidden, options.experts, options.gate, options.capacity_factor, options.parts,
      methods::moe::live_overlaps().at(static_cast<std::size_t>(options.overlap)), options.seed);
}

void check(const MixtureOptions& options, int ranks) {
  if (options.width < 1 || options.hidden < 1 || options.parts < 1)
    throw ConfigError(fmt::format("a mixture of width {}, hidden {} and {} parts: each must be at least 1",
                                  options.width, options.hidden, options.parts));
  static_cast<void>(find(methods::moe::gates(), options.gate, "gate"));
  static_cast<void>(methods::moe::experts_of_rank(options.experts, ranks));
  if (options.gate == "top2" && options.experts < 2)
    throw ConfigError("the gate top2 chooses two experts, and there is one: give at least 2");
  if (!std::isfinite(options.capacity_factor) || options.capacity_factor <= 0)
    throw ConfigError(
        fmt::format("a capacity factor of {} cannot be: give one above 0", options.capacity_factor));
}

// Copies of the same tensor of each rank's experts, one after another.
torch::Tensor gathered(const Group& group, const torch::Tensor& mine) {
  const torch::Tensor here = mine.detach().contiguous();
  const auto* data = static_cast<const std::byte*>(here.const_data_ptr());
  const std::vector<std::byte> all = comm::all_gather_bytes(group, std::span(data, here.nbytes()));
  std::vector<std::int64_t> shape = here.sizes().vec();
  shape.front() *= group.size();
  torch::Tensor whole = torch::empty(shape, here.options());
  std::copy(all.begin(), all.end(), static_cast<std::byte*>(whole.data_ptr()));
  return whole;
}

}  // namespace

ExpertOverlap find_expert_overlap(const std::string& name) {
  return static_cast<ExpertOverlap>(find(methods::moe::live_overlaps(), name, "overlap"));
}
MixtureImpl::MixtureImpl(MixtureOptions options, std::shared_ptr<ExpertGroup> ranks)
    : torch::nn::Module("Mixture"), options_(std::move(options)), ranks_(std::move(ranks)) {
  check(options_, ranks_->size());
  agree(ranks_->group(), "mixture of experts", text_of(options_));
  const std::int64_t here = options_.experts / ranks_->size();
  gate_ = register_parameter("gate", torch::empty({options_.experts, options_.width}));
  inputs_ = register_parameter("inputs", torch::empty({here, options_.hidden, options_.width}));
  outputs_ = register_parameter("outputs", torch::empty({here, options_.width, options_.hidden}));
  statistics_.by_expert.resize(static_cast<std::size_t>(options_.experts));
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(options_.seed);
  const auto draw = [&](torch::Tensor to, std::int64_t inputs) {
    const double bound = 1 / std::sqrt(static_cast<double>(inputs));
    to.uniform_(-bound, bound, generator);
  };
  draw(gate_, options_.width);
  // Each rank draws all experts, and keeps its own.
  const torch::Tensor scratch = torch::empty({options_.hidden, options_.width});
  for (std::int64_t expert = 0; expert < options_.experts; ++expert) {
    const std::int64_t mine = expert - ranks_->rank() * here;
    const bool kept = mine >= 0 && mine < here;
    draw(kept ? inputs_.select(0, mine) : scratch, options_.width);
    draw(kept ? outputs_.select(0, mine) : scratch.view({options_.width, options_.hidden}), options_.hidden);
  }
}

std::unique_ptr<systems::moe::MixturePass> MixtureImpl::begin(std::int64_t samples,
                                                              std::int64_t tokens_of_sample, int parts) {
  return ranks_->or_abort([&] {
    const std::int64_t capacity =
        methods::moe::capacity_of(options_.capacity_factor, samples * tokens_of_sample, options_.experts);
    return std::make_unique<systems::moe::MixturePass>(
        *this, methods::moe::parts_of_batch(samples, tokens_of_sample, parts), capacity);
  });
}

torch::Tensor MixtureImpl::forward(const torch::Tensor& x) {
  if (x.dim() < 2 || x.size(-1) != options_.width || x.numel() == 0)
    return ranks_->or_abort([&]() -> torch::Tensor {
      throw ConfigError(fmt::format("a mixture of width {} takes (batch, ..., {}), and this is [{}]",
                                    options_.width, options_.width, fmt::join(x.sizes(), ", ")));
    });
  const auto pass = begin(x.size(0), x[0].numel() / options_.width, options_.parts);
  const std::vector<torch::Tensor> parts = x.split(x.size(0) / options_.parts);
  std::vector<torch::Tensor> results;
  for (int part = 0; part < options_.parts; ++part) pass->send(part, parts[static_cast<std::size_t>(part)]);
  for (int part = 0; part < options_.parts; ++part) pass->compute(part);
  for (int part = 0; part < options_.parts; ++part) results.push_back(pass->receive(part));
  return results.size() == 1 ? results.front() : torch::cat(results);
}

torch::Tensor MixtureImpl::balance_loss() const {
  if (!balance_loss_.defined())
    throw ConfigError(
        "a mixture of experts has a balance loss after a forward pass that records for a backward pass, "
        "which none has");
  return balance_loss_;
}

std::vector<const MixtureImpl*> mixtures_of(const torch::nn::Module& model) {
  std::vector<const MixtureImpl*> found;
  if (const auto* mixture = dynamic_cast<const MixtureImpl*>(&model)) found.push_back(mixture);
  for (const auto& child : model.children())
    for (const MixtureImpl* mixture : mixtures_of(*child)) found.push_back(mixture);
  return found;
}

Model dense_model_of(const torch::nn::Module& model) {
  Model dense = live_model_of(model);
  for (const torch::Tensor& expert : expert_parameters_of(model))
    std::erase_if(dense.parameters, [&](const Model::Named& one) { return one.tensor.is_same(expert); });
  return dense;
}

std::vector<torch::Tensor> dense_parameters_of(const torch::nn::Module& model) {
  std::vector<torch::Tensor> parameters;
  for (const Model::Named& one : dense_model_of(model).parameters) parameters.push_back(one.tensor);
  return parameters;
}

std::vector<torch::Tensor> expert_parameters_of(const torch::nn::Module& model) {
  std::vector<torch::Tensor> experts;
  for (const MixtureImpl* mixture : mixtures_of(model))
    for (const torch::Tensor& expert : mixture->expert_parameters()) experts.push_back(expert);
  return experts;
}

Model whole_model_of(const torch::nn::Module& model) {
  Model whole = model_of(model);
  for (const MixtureImpl* mixture : mixtures_of(model))
    for (const torch::Tensor& expert : mixture->expert_parameters())
      for (Model::Named& one : whole.parameters)
        if (one.tensor.is_same(expert)) one.tensor = gathered(mixture->ranks()->group(), expert);
  return whole;
}

}  // namespace dear
