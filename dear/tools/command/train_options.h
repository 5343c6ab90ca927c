#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/comm/backends/environment.h"
#include "dear/systems/train_command/optimizers.h"
#include "dear/systems/train_command/train_settings.h"
#include "dear/tools/command/kfac_options.h"
#include "dear/tools/command/train_moe_options.h"
#include "dear/tools/options/grid_options.h"

namespace dear::cli {

// The options of checkpoints, as a user gives them.
struct SavingOptions {
  std::optional<std::string> save{};    // a folder
  std::optional<std::int64_t> every{};  // 100
  std::optional<std::int64_t> keep{};   // 2
  bool resume = false;
};
train_command::Saving checked_saving(const SavingOptions& options);

// TrainOptions hold the options of `dear train` or `dear tune training`, as a user gives them, with text
// where a value has a form of its own.
struct TrainOptions {
  train_command::GptJob job{};
  std::string command = "dear train";
  std::string data = "/usr/share/common-licenses";
  std::optional<std::int64_t> workers{};             // 1, or as many as the launcher started
  std::optional<std::string> policy{};               // dear
  std::optional<std::string> compare{};              // "serial,wfbp,dear"
  std::optional<std::string> compress{};             // "top-k:0.01,ef"
  std::optional<std::string> compare_compression{};  // "dense top-k:0.01,ef"
  std::optional<std::string> plot{};                 // of loss against bytes and seconds
  std::optional<std::string> fusion{};               // auto
  std::optional<std::string> schedule{};             // a file with policy and buckets, instead of the three
  std::optional<std::string> tuning_cache{};
  std::optional<std::string> network{};
  GridOptions grid{};
  std::string optimizer = "adamw";
  KfacTrainOptions kfac{};                // with --optimizer kfac
  MoeTrainOptions moe{};                  // the model, and its mixtures of experts
  std::optional<double> learning_rate{};  // by optimiser, see train_command::optimizers()
  std::optional<std::int64_t> threads{};  // per worker; those of the host
  bool bind = false;
  std::optional<std::string> trace{};
  std::optional<std::string> json{};
  std::optional<std::string> profile{};
  std::optional<std::string> metrics{};
  std::string timeout = "120s";
  std::optional<std::int64_t> sample{};  // 200 with --compare and --model gpt, else 0
  SavingOptions saving{};
  // Files that `dear tune training` writes.
  std::optional<std::string> tuning_json{}, tuning_plot{}, tuned_schedule{};
};

// A Host is the machine where the command runs, as far as options depend on it.
struct Host {
  int cores = 1;                 // that this process may use; the workers on this host share them
  std::optional<int> threads{};  // of each worker, where the environment says how many
};
Host this_host();

// Checked options: no later step refuses any of them.
struct TrainSettings : train_command::TrainSettings {
  std::string command = "dear train";
  std::string data;
  bool bind = false;
  std::string trace, json, profile, plot;  // "" for none
  // The file for the trace of a policy: `trace`, or, when policies are compared, a file beside it with the
  // policy's name before the ending, such as run-dear.json for run.json.
  [[nodiscard]] std::string trace_of(const std::string& policy) const;
  std::string tuning_json, tuning_plot, tuned_schedule;  // "" for none
};

// Parts of check(), for another command with such options. Of `others`, the names that it takes besides.
void check(const train_command::GptJob& job);
void check_learning_rate(double rate);
const train_command::OptimizerChoice& checked_optimizer(const std::string& name,
                                                        const std::vector<std::string_view>& others = {});
// The threads of each worker: those that are given, else those of the host, shared out.
int checked_threads(const std::optional<std::int64_t>& given, int workers,
                    const LaunchEnvironment& environment, const Host& host);

// ConfigError, one sentence that names the option, for the first value that cannot be used. Looks at the file
// system (can the output files be written?), changes nothing.
TrainSettings check(const TrainOptions& options, const LaunchEnvironment& environment, const Host& host);

}  // namespace dear::cli
