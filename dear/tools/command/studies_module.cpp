// `dear study` and `dear aggregate` lie in a module of their own, libdear_studies.so: who trains or plans
// need not build it.

#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/os/module.h"
#include "dear/base/vocabulary/error.h"
#include "dear/tools/command/commands.h"

namespace dear::cli {
namespace {

constexpr const char* kModule = "dear_studies";

// The module's commands, nullptr where this build has none.
const StudyCommands* study_commands() {
  static const StudyCommands* const kLoaded =
      os::Module::exists(kModule)
          ? os::Module::open(kModule).function<const StudyCommands*()>("dear_study_commands")()
          : nullptr;
  return kLoaded;
}

// A command that says how to have it.
void add_missing(CLI::App& app, const std::string& name, const std::string& description) {
  CLI::App* const command = app.add_subcommand(name, description + "; not in this build");
  command->allow_extras();
  command->callback([] {
    throw ConfigError(
        fmt::format("this dear has no libdear_studies.so, which holds the studies, in {}: build it with "
                    "-DDEAR_STUDIES=ON",
                    fmt::join(os::Module::directories(), ", ")));
  });
}

}  // namespace

void add_study_command(CLI::App& app) {
  if (const StudyCommands* const commands = study_commands()) return commands->add_study(app);
  add_missing(app, "study", "Simulate whole studies");
}

void add_aggregate_command(CLI::App& app) {
  if (const StudyCommands* const commands = study_commands()) return commands->add_aggregate(app);
  add_missing(app, "aggregate", "Add sparse gradients through an aggregator");
}

}  // namespace dear::cli
