#include "dear/cli/training_module.h"

#include "dear/base/error.h"
#include "dear/base/module.h"
#include "dear/train/c10d/backends.h"

namespace dear::cli {
namespace {

constexpr const char* kModule = "dear_training";

MadeBackend make_gloo_backend(const Placement& placement) {
  return find_backend(train::kGlooBackend, training_module().c10d_backends()).make(placement);
}

}  // namespace

std::string training_missing() {
  return Module::exists(kModule) ? ""
                                 : "this dear has no libdear_training.so, which needs libtorch and without "
                                   "which it neither trains nor profiles: "
                                   "build it with -DDEAR_TORCH=ON";
}

const TrainingModule& training_module() {
  static const TrainingModule* const kLoaded = [] {
    if (const std::string missing = training_missing(); !missing.empty()) throw ConfigError(missing);
    return Module::open(kModule).function<const TrainingModule*()>("dear_training_module")();
  }();
  return *kLoaded;
}

std::string gloo_missing() {
  if (std::string missing = training_missing(); !missing.empty()) return missing;
  try {
    return find_backend(train::kGlooBackend, training_module().c10d_backends()).missing();
  } catch (const ConfigError& error) {
    return error.what();
  }
}

const BackendTable& training_backends() {
  static const BackendTable kTable = {
      {train::kGlooBackend, train::kGlooBackendSummary, gloo_missing, make_gloo_backend}};
  return kTable;
}

}  // namespace dear::cli
