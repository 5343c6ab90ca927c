#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "dear/base/error.h"
#include "dear/cli/tune_training.h"

namespace dear::cli {

void add_tune_training(CLI::App& tune) {
  tune.add_subcommand("training", "Tune a job that trains (not in this build: it has no libtorch)")
      ->allow_extras()
      ->callback([] {
        throw ConfigError(
            "this build of dear has no libtorch, with which it trains: build it again with -DDEAR_TORCH=ON");
      });
}

}  // namespace dear::cli
