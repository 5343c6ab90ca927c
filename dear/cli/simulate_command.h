#pragma once

namespace CLI {
class App;
}

namespace dear::cli {

void add_simulate_command(CLI::App& app);  // `dear simulate`

}  // namespace dear::cli
