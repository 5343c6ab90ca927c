#pragma once

namespace CLI {
class App;
}

namespace dear::cli {

// `dear train`: trains a small GPT on the characters of a text, with several workers, under one policy or
// several for comparison. Starts its workers itself unless a launcher's environment says that this process is
// one of them.
void add_train_command(CLI::App& app);

}  // namespace dear::cli
