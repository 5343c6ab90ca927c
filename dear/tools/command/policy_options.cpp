#include "dear/tools/command/policy_options.h"

#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/schedule_file.h"

namespace dear::cli {

void PolicyOptions::add_to(CLI::App& command, const std::string& fusion_help,
                           const std::string& usual_fusion) {
  command.add_option("--policy", policies, "Policies; speed-ups are over the first")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME[,NAME...]")
      ->default_str("serial,wfbp,dear");
  command.add_option("--fusion", fusion, fusion_help)->type_name("SPEC")->default_str(usual_fusion);
  command
      .add_option("--schedule", schedule,
                  "Policy and buckets from a file that `dear plan --schedule` wrote, instead of --policy and "
                  "--fusion")
      ->type_name("FILE");
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
