// The functions that the module gives to training_module.h.

#include "dear/demo/corpus.h"
#include "dear/demo/profile_run.h"
#include "dear/demo/train_run.h"
#include "dear/demo/training_module.h"

extern "C" __attribute__((visibility("default"))) const dear::demo::TrainingModule* dear_training_module() {
  static constexpr dear::demo::TrainingModule kModule{.start_training = dear::demo::start_training,
                                                      .set_compute_threads = dear::demo::set_compute_threads,
                                                      .parameter_count = dear::demo::parameter_count,
                                                      .profile = dear::demo::profile};
  return &kModule;
}
