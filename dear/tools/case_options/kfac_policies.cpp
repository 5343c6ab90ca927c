#include "dear/tools/case_options/kfac_policies.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/methods/kfac/modelled.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/table.h"

namespace dear::cli {

void KfacPolicyOptions::add_to(CLI::App& command) {
  const OptionAdder add(command);
  add("--factor-fusion", factor_fusion, "NAME",
      "With K-FAC, which factors travel together: alone, threshold (16 Mi elements), rule (that of "
      "SPD-KFAC), exact, or together; default: the policy's own");
  add("--inverse-placement", inverse_placement, "NAME",
      "With K-FAC, who inverts: local (every rank all), round-robin, balanced (one rank those that take "
      "longer to invert than to send), or planned (the fastest of these and of fewer sent); default: the "
      "policy's own");
  add("--factor-every", factor_every, "K", "With K-FAC, iterations from factors to factors (default 1)")
      ->check(CLI::Range(1, 1000));
  add("--inverse-every", inverse_every, "K",
      "With K-FAC, iterations from inverses to inverses, a multiple of --factor-every (default: the "
      "same)")
      ->check(CLI::Range(1, 1000));
}

void KfacPolicyOptions::require_kfac(const std::vector<std::string>& policies) const {
  if (!policies.empty()) return;
  if (factor_fusion || inverse_placement || factor_every || inverse_every)
    throw ConfigError(
        "--factor-fusion, --inverse-placement, --factor-every and --inverse-every are for policies of K-FAC: "
        "add --policy spd-kfac, or leave them out");
}

cases::KfacNames KfacPolicyOptions::names(std::vector<std::string> policies) const {
  const std::uint32_t factors = factor_every.value_or(1);
  return {.policies = std::move(policies),
          .factor_fusion = factor_fusion.value_or(""),
          .inverse_placement = inverse_placement.value_or(""),
          .intervals = {.factors = factors, .inverses = inverse_every.value_or(factors)}};
}

Policies divide(const std::vector<std::string>& policies) {
  Policies divided;
  for (const std::string& name : policies)
    (cases::is_kfac(name) ? divided.kfac : divided.others).push_back(name);
  return divided;
}

std::string left_out_of(const std::vector<cases::KfacCase>& cases) {
  std::string text;
  std::set<std::string> said;
  for (const cases::KfacCase& one : cases) {
    const std::string sentence = cases::describe_left_out(one.on);
    if (!sentence.empty() && said.insert(sentence).second) text += sentence + "\n";
  }
  return text;
}

std::string table_of(const std::vector<cases::KfacCase>& cases, std::size_t lines) {
  Table table(
      {"model", "cluster", "policy", "ranks", "passes", "gradients", "factors", "factors sent", "inverses",
       "inverses sent", "update", "iteration", "groups", "dealt inverses", "curvature", "speed-up"},
      {.left_columns = 3});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const cases::KfacCase& one = cases[i];
    const methods::kfac::Breakdown& parts = one.prediction.parts;
    table.add({one.on.scenario->workload.name, one.on.scenario->cluster.name, one.strategy.name,
               std::to_string(one.on.costs.ranks), format_seconds(parts.passes),
               format_seconds(parts.gradients), format_seconds(parts.factors),
               format_seconds(parts.factors_sent), format_seconds(parts.inverses),
               format_seconds(parts.inverses_sent), format_seconds(parts.update),
               format_seconds(one.prediction.iteration_seconds),
               fmt::format("{} of {}", one.plan.groups.size(), one.plan.factors.size()),
               std::to_string(one.inverses_sent()), format_bytes(methods::kfac::curvature_bytes(one.on.job)),
               fmt::format("{:.2f}", cases[i - i % lines].prediction.iteration_seconds /
                                         one.prediction.iteration_seconds)});
  }
  return table.to_string();
}

}  // namespace dear::cli
