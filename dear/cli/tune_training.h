#pragma once

namespace CLI {
class App;
}

namespace dear::cli {

// `dear tune training`: finds the buckets of a job that trains, and ends when they are found.
void add_tune_training(CLI::App& tune);

}  // namespace dear::cli
