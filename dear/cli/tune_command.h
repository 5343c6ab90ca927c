#pragma once

namespace CLI {
class App;
}

namespace dear::cli {

void add_tune_command(CLI::App& app);  // `dear tune`

}  // namespace dear::cli
