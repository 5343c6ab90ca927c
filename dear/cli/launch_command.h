#pragma once

namespace CLI {
class App;
}

namespace dear::cli {

void add_launch_command(CLI::App& app);  // `dear launch`

}  // namespace dear::cli
