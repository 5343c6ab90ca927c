#include "dear/tools/case_options/policy_options.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/schedule_file.h"
#include "dear/tools/options/option_adder.h"

namespace dear::cli {

void PolicyOptions::add_to(CLI::App& command, const std::string& fusion_help,
                           const std::string& usual_fusion) {
  const OptionAdder add(command);
  add.list("--policy", policies, "NAME[,NAME...]", "Policies; speed-ups are over the first")
      ->default_str("serial,wfbp,dear");
  add("--fusion", fusion, "SPEC", fusion_help)->default_str(usual_fusion);
  add("--schedule", schedule, "FILE",
      "Policy and buckets from a file that `dear plan --schedule` wrote, instead of --policy and "
      "--fusion");
}

void refuse_beside(std::string_view what, const CLI::App& command,
                   std::initializer_list<const char*> options) {
  for (const char* const option : options)
    if (command.count(option) > 0)
      throw ConfigError(fmt::format("{} does not go with {}: leave it out", option, what));
}

PolicyChoice choose_policies(const PolicyOptions& options) {
  if (options.schedule.empty()) {
    if (options.policies.empty()) return {.policies = {"serial", "wfbp", "dear"}};
    return {.policies = options.policies};
  }
  if (!options.policies.empty() || options.fusion)
    throw ConfigError("--schedule names a policy and its buckets: leave --policy and --fusion out");
  ScheduleFile file = read_schedule_file(options.schedule);
  return {.policies = {file.policy}, .buckets = std::move(file.buckets)};
}

}  // namespace dear::cli
