#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dear/collective/backends.h"

namespace dear {
class Group;
}

namespace dear::cli {

namespace bench {
class Engine;
struct EngineOptions;
}  // namespace bench
struct Corpus;
struct ModelProfile;
struct ProfileSettings;
class TrainingJob;
struct TrainRun;
struct TrainSettings;

// What of the command needs libtorch, as a module of its own (libdear_training.so): libtorch takes half a
// second to load, which no simulation should have to wait for. Each is the function of that name in
// train_run.h, profile_run.h, train/c10d/backends.h and bench/gloo_engine.h.
struct TrainingModule {
  std::unique_ptr<TrainingJob> (*start_training)(const TrainSettings& settings, const TrainRun& run,
                                                 const Corpus& corpus, const Group& group);
  void (*set_compute_threads)(int threads);
  std::int64_t (*parameter_count)(const TrainSettings& settings, const Corpus& corpus);
  ModelProfile (*profile)(const ProfileSettings& settings);
  const BackendTable& (*c10d_backends)();
  std::unique_ptr<bench::Engine> (*make_gloo_engine)(const bench::EngineOptions& options);
};

// Loads it, the first time. ConfigError where this build has none, or it cannot be loaded.
const TrainingModule& training_module();
// Why there is none; "" when there is. Loads nothing.
std::string training_missing();

// The backends of the process groups of libtorch, as train::c10d_backends(). Their names are known without
// it; it is loaded when somebody asks for more.
const BackendTable& training_backends();
std::string gloo_missing();  // of the one that is on Gloo

}  // namespace dear::cli
