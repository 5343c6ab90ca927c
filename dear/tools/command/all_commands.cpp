#include <array>

#include "dear/tools/command/commands.h"

namespace dear::cli {

std::span<const AddCommand> commands() {
  static constexpr std::array<AddCommand, 20> kCommands{
      add_train_command,  add_launch_command,    add_diagnose_command,   add_profile_command,
      add_replay_command, add_simulate_command,  add_plan_command,       add_pipeline_command,
      add_rounds_command, add_edge_command,      add_tune_command,       add_study_command,
      add_models_command, add_clusters_command,  add_trace_command,      add_report_command,
      add_bench_command,  add_aggregate_command, add_completion_command, add_man_command};
  return kCommands;
}

}  // namespace dear::cli
