#include "dear/cli/tune_training.h"

#include <memory>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "dear/cli/train_command.h"
#include "dear/cli/train_options.h"

namespace dear::cli {

void add_tune_training(CLI::App& tune) {
  CLI::App* const command = tune.add_subcommand(
      "training", "Tune the job of dear train, while it trains; ends when it has settled");
  const auto options = std::make_shared<TrainOptions>();
  options->command = "dear tune training";
  options->tune = true;
  const auto start = std::make_shared<std::string>();
  add_job_options(*command, *options);
  command->add_option("--start", *start, "Bucket size that runs first")->type_name("SIZE");
  command->add_option("--json", options->tuning_json, "Write trials and choice to FILE")->type_name("FILE");
  command->add_option("--plot", options->tuning_plot, "Draw trials and what is expected of the rest, as SVG")
      ->type_name("FILE");
  command->add_option("--schedule", options->tuned_schedule, "Write the choice for dear train --schedule")
      ->type_name("FILE");
  command->callback([options, start] {
    if (!start->empty()) options->fusion = "auto=" + *start;
    run_train_command(*options);
  });
}

}  // namespace dear::cli
