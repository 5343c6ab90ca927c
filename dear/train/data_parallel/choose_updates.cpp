#include "dear/train/data_parallel/choose_updates.h"

#include <algorithm>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"

namespace dear::train {
namespace {

double usual_cost(const torch::Tensor& tensor) {
  const auto elements = static_cast<double>(tensor.numel());
  if (tensor.dim() < 2) return elements;
  const auto rows = static_cast<double>(tensor.size(0));
  return elements * std::min(rows, elements / rows);
}

void require_updates_ahead(const Optimizer& optimizer, const std::string& policy) {
  const std::size_t groups = optimizer.parameter_groups().size();
  bool whole = false;
  for (std::size_t i = 0; i < groups; ++i) whole = whole || optimizer.vectors(i).whole;
  if (!whole && optimizer.norms() == 0) return;
  throw ConfigError(fmt::format(
      "{} looks at {}, and policy {} updates a part of a tensor when the gradients of others have "
      "not come: train with policy dear",
      optimizer.name(), whole ? "whole tensors" : "norms of whole tensors", policy));
}

void require_usable_by_program(const DataParallelOptions& options, const std::string& why) {
  const auto refuse = [&](const char* option) {
    throw ConfigError(
        fmt::format("{} is for updates of shards, and here the program's optimiser updates the parameters "
                    "itself, because "
                    "{}: leave it out, or see to that",
                    option, why));
  };
  if (options.one_copy) refuse("one copy of the parameters for all ranks");
  if (options.fp32_masters) refuse("fp32 masters");
  if (options.stochastic_rounding) refuse("stochastic rounding");
}

}  // namespace

UpdateRules choose_updates(Optimizer& optimizer, const DataParallelOptions& options, bool updates_in_backward,
                           const ModelScan& scanned, const optim::TensorSet& moved) {
  UpdateRules rules;
  rules.of_program = optimizer.choose_updates(options.updates, options.ownership).value_or("");
  if (!rules.by_program()) {
    if (const std::optional<std::string> shared = memory_of_others(scanned, moved)) {
      if (options.updates == Updates::sharded)
        throw ConfigError(fmt::format(
            "{}, which a parameter that moves into a bucket would leave behind: let go of it before, or let "
            "the program's optimiser update the parameters where they are (Updates::program)",
            *shared));
      rules.of_program = *shared;
    }
  }
  if (rules.by_program()) {
    rules.whole_costs.assign(scanned.trained.size(), 0);
    return rules;
  }
  const std::vector<TrainedParameter>& parameters = scanned.trained;
  if (updates_in_backward) require_updates_ahead(optimizer, options.policy);
  if (options.fp32_masters) rules.widening.masters = optim::Masters::fp32;
  if (options.stochastic_rounding)
    rules.widening.rounding = {.seed = at::detail::getDefaultCPUGenerator().current_seed()};
  for (const TrainedParameter& parameter : parameters) {
    double cost = 0;
    if (optimizer.vectors(parameter.parameter_group).whole) {
      cost = options.update_cost ? options.update_cost(parameter.name, parameter.tensor)
                                 : usual_cost(parameter.tensor);
      if (!(cost > 0))
        throw ConfigError(
            fmt::format("update_cost of parameter '{}' is {}: give a number above 0", parameter.name, cost));
    }
    rules.whole_costs.push_back(cost);
  }
  return rules;
}

void agree_who_updates(const Group& group, const DataParallelOptions& options, UpdateRules& rules) {
  const std::vector<std::string> reasons = all_gather_text(group, rules.of_program);
  const auto first =
      std::find_if(reasons.begin(), reasons.end(), [](const auto& one) { return !one.empty(); });
  if (first == reasons.end()) return;
  rules.of_program = *first;
  rules.whole_costs.assign(rules.whole_costs.size(), 0);
  require_usable_by_program(options, rules.of_program);
}

void agree_on_updates(const Group& group, UpdateRules& rules) {
  if (rules.by_program()) return;
  const bool masters = rules.widening.masters == optim::Masters::fp32,
             stochastic = rules.widening.rounding.has_value();
  agree(group, "choice of fp32 masters", masters, [&] { return masters ? "on" : "off"; });
  agree(group, "choice of stochastic rounding", stochastic, [&] { return stochastic ? "on" : "off"; });
  Digest digest;
  for (const double cost : rules.whole_costs) digest.add(fmt::format("{}", cost));
  agree(group, "ownership of tensors, or cost of updates",
        fmt::format("{} tensors whole, digest {}",
                    std::count_if(rules.whole_costs.begin(), rules.whole_costs.end(),
                                  [](double cost) { return cost > 0; }),
                    digest.hex()));
  if (stochastic)
    rules.widening.rounding->seed = comm::all_gather_values(group, rules.widening.rounding->seed).front();
}

}  // namespace dear::train
