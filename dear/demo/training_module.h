#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace dear {
class Group;
}

namespace dear::demo {

struct Corpus;
struct ModelProfile;
struct ProfileSettings;
class TrainingJob;
struct TrainRun;
struct TrainSettings;

// What of the command needs libtorch, as a module of its own (libdear_training.so): libtorch takes half a
// second to load, which no simulation should have to wait for. Each is the function of that name in
// train_run.h and profile_run.h.
struct TrainingModule {
  std::unique_ptr<TrainingJob> (*start_training)(const TrainSettings& settings, const TrainRun& run,
                                                 const Corpus& corpus, const Group& group);
  void (*set_compute_threads)(int threads);
  std::int64_t (*parameter_count)(const TrainSettings& settings, const Corpus& corpus);
  ModelProfile (*profile)(const ProfileSettings& settings);
};

// Loads it, the first time. ConfigError where this build has none, or it cannot be loaded.
const TrainingModule& training_module();
// Why there is none; "" when there is. Loads nothing.
std::string training_missing();

}  // namespace dear::demo
