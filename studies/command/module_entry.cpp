// The module gives this to the command.

#include "studies/command/study_commands.h"

#include "dear/tools/options/add_command.h"

extern "C" __attribute__((visibility("default"))) const dear::cli::StudyCommands* dear_study_commands() {
  static constexpr dear::cli::StudyCommands kCommands{.add_study = dear::cli::add_study,
                                                      .add_aggregate = dear::cli::add_aggregate};
  return &kCommands;
}
