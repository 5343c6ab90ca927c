#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/schedule/policies/rows.h"

namespace dear {
namespace {

std::vector<std::string_view> names_of(const std::vector<Policy>& table) {
  std::vector<std::string_view> names;
  for (const Policy& policy : table) names.push_back(policy.name);
  return names;
}

std::string no_policy(std::string_view name, const std::vector<Policy>& table) {
  const std::vector<std::string_view> names = names_of(table);
  return fmt::format("no policy is called \"{}\"{} choose one of {}", name, did_you_mean(name, names, ":"),
                     fmt::join(names, ", "));
}

}  // namespace

const std::vector<Policy>& policies() {
  static const std::vector<Policy> kTable = {serial_policy(),  wfbp_policy(),      mg_wfbp_policy(),
                                             horovod_policy(), ddp_policy(),       bytescheduler_policy(),
                                             us_byte_policy(), zero_1_policy(),    megatron_policy(),
                                             fsdp_policy(),    hsdp_policy(),      dear_replicated_policy(),
                                             dear_policy(),    dear_eager_policy()};
  return kTable;
}

std::vector<Policy> training_policies() {
  std::vector<Policy> table;
  std::copy_if(policies().begin(), policies().end(), std::back_inserter(table),
               [](const Policy& policy) { return policy.trains; });
  return table;
}

const Policy& find_policy(std::string_view name) {
  for (const Policy& policy : policies())
    if (policy.name == name) return policy;
  throw ConfigError(no_policy(name, policies()));
}

const Policy& find_training_policy(std::string_view name) {
  for (const Policy& policy : policies()) {
    if (policy.name != name) continue;
    if (policy.trains) return policy;
    throw ConfigError(fmt::format("policy \"{}\" can only be simulated: to train, choose one of {}", name,
                                  fmt::join(names_of(training_policies()), ", ")));
  }
  throw ConfigError(no_policy(name, training_policies()));
}

std::vector<std::string> automatic_candidates(std::string_view policy) {
  constexpr std::string_view kAuto = "auto";
  if (policy.substr(0, kAuto.size()) != kAuto) return {};
  if (policy == kAuto) return {"dear", "wfbp"};
  std::vector<std::string> candidates;
  std::string_view rest = policy.substr(kAuto.size());
  while (!rest.empty() && (rest.front() == '=' || (rest.front() == ',' && !candidates.empty()))) {
    rest.remove_prefix(1);
    const std::string_view name = rest.substr(0, rest.find(','));
    candidates.emplace_back(find_training_policy(name).name);
    if (std::count(candidates.begin(), candidates.end(), candidates.back()) > 1)
      throw ConfigError(fmt::format("\"{}\" names policy {} twice", policy, name));
    rest.remove_prefix(name.size());
  }
  if (!rest.empty() || candidates.size() < 2)
    throw ConfigError(
        fmt::format("\"{}\" names no choice of policies: write \"auto\", or two or more policies as in "
                    "\"auto=dear,wfbp,dear-eager\"",
                    policy));
  return candidates;
}

Schedule make_schedule(const Policy& policy, const Workload& workload, const Grouping& grouping,
                       const cost::CollectiveTimes& times) {
  return policy.make(workload, grouping, times);
}

double stale_gradient_floor(double f, double b, double r) { return std::max(f + b, r); }

}  // namespace dear
