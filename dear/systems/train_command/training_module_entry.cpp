// The functions that the module gives to training_module.h.

#include "dear/systems/train_command/corpus.h"
#include "dear/systems/train_command/pipeline_training.h"
#include "dear/systems/train_command/profile_run.h"
#include "dear/systems/train_command/train_run.h"
#include "dear/systems/train_command/training_module.h"

extern "C" __attribute__((visibility("default"))) const dear::train_command::TrainingModule*
dear_training_module() {
  static constexpr dear::train_command::TrainingModule kModule{
      .start_training = dear::train_command::start_training,
      .set_compute_threads = dear::train_command::set_compute_threads,
      .parameter_count = dear::train_command::parameter_count,
      .profile = dear::train_command::profile,
      .train_pipeline = dear::train_command::train_pipeline};
  return &kModule;
}
