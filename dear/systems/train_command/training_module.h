#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace dear {
class Group;
}

namespace dear::train_command {

struct Corpus;
struct ModelProfile;
struct ProfileSettings;
struct PipelineJob;
struct PipelineListener;
struct PipelineTrained;
class TrainingJob;
struct TrainRun;
struct TrainSettings;

// The functions that need libtorch, each that of the same name in train_run.h, profile_run.h or
// pipeline_training.h. They lie in a
// module of their own, libdear_training.so, because a simulation should not wait the half second in which
// libtorch is loaded.
struct TrainingModule {
  std::unique_ptr<TrainingJob> (*start_training)(const TrainSettings& settings, const TrainRun& run,
                                                 const Corpus& corpus, const Group& group);
  void (*set_compute_threads)(int threads);
  std::int64_t (*parameter_count)(const TrainSettings& settings, const Corpus& corpus);
  ModelProfile (*profile)(const ProfileSettings& settings);
  PipelineTrained (*train_pipeline)(const PipelineJob& job, const Corpus& corpus, const Group& group,
                                    const PipelineListener& listener);
};

// Loads the module at the first call. ConfigError where this build has no module, or it cannot be loaded.
const TrainingModule& training_module();
// Why this build has no module; "" when it has one. Loads nothing.
std::string training_missing();

}  // namespace dear::train_command
