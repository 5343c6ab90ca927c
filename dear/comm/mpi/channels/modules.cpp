#include "dear/comm/mpi/channels/modules.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/os/module.h"
#include "dear/base/vocabulary/error.h"

namespace dear::channels {
namespace {

struct Implementation {
  std::string_view name;
  std::string_view package;  // Debian's
};
constexpr std::array kImplementations = {Implementation{"openmpi", "libopenmpi-dev"},
                                         Implementation{"mpich", "libmpich-dev"}};

std::string module_of(std::string_view implementation) { return fmt::format("dear_mpi_{}", implementation); }

}  // namespace

std::vector<std::string> mpi_implementations() {
  std::vector<std::string> found;
  for (const Implementation& one : kImplementations) {
    if (os::Module::exists(module_of(one.name))) {
      found.emplace_back(one.name);
    }
  }
  return found;
}

const MpiBinding& load_mpi_module(const std::string& implementation) {
  const auto* const known =
      std::find_if(kImplementations.begin(), kImplementations.end(),
                   [&](const Implementation& one) { return one.name == implementation; });
  if (known == kImplementations.end()) {
    std::vector<std::string_view> names;
    for (const Implementation& one : kImplementations) {
      names.push_back(one.name);
    }
    throw ConfigError(
        fmt::format("there is no MPI called '{}'; choose one of {}", implementation, fmt::join(names, ", ")));
  }
  if (!os::Module::exists(module_of(implementation))) {
    const std::vector<std::string> present = mpi_implementations();
    throw ConfigError(fmt::format(
        "DeAR was built without {} ({}): install {} and build it again", implementation,
        present.empty() ? "and without any other MPI" : fmt::format("with {}", fmt::join(present, ", ")),
        known->package));
  }
  const os::Module module = os::Module::open(module_of(implementation));
  const MpiBinding* const binding = module.function<const MpiBinding*()>(kMpiBindingSymbol)();
  if (binding->revision != kMpiBindingRevision) {
    throw ConfigError(fmt::format(
        "{} belongs to another version of DeAR: build or install both together, anew", module.path()));
  }
  return *binding;
}

}  // namespace dear::channels
