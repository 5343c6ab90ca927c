#pragma once

namespace CLI {
class App;
}

namespace dear::cli {

void add_trace_command(CLI::App& app);  // `dear trace`

}  // namespace dear::cli
