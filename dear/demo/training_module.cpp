#include "dear/demo/training_module.h"

#include "dear/base/error.h"
#include "dear/base/module.h"

namespace dear::demo {
namespace {

constexpr const char* kModule = "dear_training";

}  // namespace

std::string training_missing() {
  if (Module::exists(kModule)) return "";
  std::string places;
  for (const std::string& folder : Module::directories()) places += (places.empty() ? "" : ", ") + folder;
  return "this dear has no libdear_training.so, which needs libtorch and without which it neither trains nor "
         "profiles, in " +
         places + ": build it with -DDEAR_TORCH=ON";
}

const TrainingModule& training_module() {
  static const TrainingModule* const kLoaded = [] {
    if (const std::string missing = training_missing(); !missing.empty()) throw ConfigError(missing);
    return Module::open(kModule).function<const TrainingModule*()>("dear_training_module")();
  }();
  return *kLoaded;
}

}  // namespace dear::demo
