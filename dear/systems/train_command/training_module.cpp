#include "dear/systems/train_command/training_module.h"

#include "dear/base/os/module.h"
#include "dear/base/vocabulary/error.h"

namespace dear::train_command {
namespace {

constexpr const char* kModule = "dear_training";

}  // namespace

std::string training_missing() {
  if (os::Module::exists(kModule)) return "";
  std::string places;
  for (const std::string& folder : os::Module::directories()) places += (places.empty() ? "" : ", ") + folder;
  return "this dear has no libdear_training.so, which needs libtorch and without which it neither trains nor "
         "profiles, in " +
         places + ": build it with -DDEAR_TORCH=ON";
}

const TrainingModule& training_module() {
  static const TrainingModule* const kLoaded = [] {
    if (const std::string missing = training_missing(); !missing.empty()) throw ConfigError(missing);
    return os::Module::open(kModule).function<const TrainingModule*()>("dear_training_module")();
  }();
  return *kLoaded;
}

}  // namespace dear::train_command
