// The module's side of training_module.h.

#include "dear/cli/corpus.h"
#include "dear/cli/profile_run.h"
#include "dear/cli/train_run.h"
#include "dear/cli/training_module.h"

extern "C" __attribute__((visibility("default"))) const dear::cli::TrainingModule* dear_training_module() {
  static constexpr dear::cli::TrainingModule kModule{.start_training = dear::cli::start_training,
                                                     .set_compute_threads = dear::cli::set_compute_threads,
                                                     .parameter_count = dear::cli::parameter_count,
                                                     .profile = dear::cli::profile};
  return &kModule;
}
