#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "dear/base/error.h"
#include "dear/cli/profile_command.h"

namespace dear::cli {

void add_profile_command(CLI::App& app) {
  app.add_subcommand("profile", "Measure a TorchScript model (not in this build: it has no libtorch)")
      ->allow_extras()
      ->callback([] {
        throw ConfigError(
            "this build of dear has no libtorch, with which it runs models: build it again with "
            "-DDEAR_TORCH=ON");
      });
}

}  // namespace dear::cli
