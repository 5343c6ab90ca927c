#pragma once

namespace CLI {
class App;
}

namespace dear::cli {

struct TrainOptions;

// `dear train`: trains a small GPT on the characters of a text, with several workers, under one policy or
// several for comparison. Starts its workers itself unless a launcher's environment says that this process is
// one of them.
void add_train_command(CLI::App& app);

// What it shares with `dear tune training`.
void add_job_options(CLI::App& command, TrainOptions& options);
void run_train_command(const TrainOptions& options);

}  // namespace dear::cli
