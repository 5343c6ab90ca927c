#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/moe/mixtures.h"

namespace dear::methods::moe {

const std::vector<MixtureModel>& mixture_models() {
  static const std::vector<MixtureModel> kTable{
      {.name = "gpt2-s-moe",
       .summary = "GPT-2 of 12 layers, in every second one two experts a rank",
       .source = "Jiang et al. 2024, arXiv 2404.19429",
       .layers = 12,
       .width = 768,
       .heads = 12,
       .inner_width = 3072,
       .vocabulary = 50257,
       .length = 512,
       .experts_of_rank = 2,
       .expert_width = 3072,
       .batches = {{"a100", 48}, {"v100", 16}}},
      {.name = "gpt2-l-moe",
       .summary = "GPT-2 of 24 layers, in every second one two experts a rank",
       .source = "Jiang et al. 2024, arXiv 2404.19429",
       .layers = 24,
       .width = 1024,
       .heads = 16,
       .inner_width = 4096,
       .vocabulary = 50257,
       .length = 512,
       .experts_of_rank = 2,
       .expert_width = 4096,
       .batches = {{"a100", 24}, {"v100", 8}}},
      {.name = "deepseek-moe-16b",
       .summary = "DeepSeekMoE 16B: six of 64 small experts and two shared ones in all layers but the first",
       .source = "Dai et al. 2024, arXiv 2401.06066",
       .layers = 28,
       .width = 2048,
       .heads = 16,
       .inner_width = 10944,
       .vocabulary = 102'400,
       .length = 4096,
       .first_mixture = 1,
       .mixture_every = 1,
       .experts = 64,
       .expert_width = 1408,
       .shared_width = 2816,
       .choices = 6,
       .fused_attention = true,
       .gated = true}};
  return kTable;
}

const MixtureModel& find_mixture_model(std::string_view name) {
  return find_named(mixture_models(), name, "model with mixtures");
}

std::int64_t batch_of(const MixtureModel& model, std::string_view device) {
  for (const auto& [name, samples] : model.batches)
    if (name == device) return samples;
  throw ConfigError(
      fmt::format("nobody said with which batch {} trains on '{}': give one", model.name, device));
}

std::string name_of(Gate gate) { return gate == Gate::in_order ? "switch" : "batch-prioritized"; }

Gate find_gate(std::string_view name) {
  for (const Gate gate : {Gate::in_order, Gate::by_importance})
    if (name == name_of(gate)) return gate;
  throw ConfigError(fmt::format("there is no gate '{}': choose switch or batch-prioritized", name));
}

}  // namespace dear::methods::moe
