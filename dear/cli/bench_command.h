#pragma once

namespace CLI {
class App;
}

namespace dear::cli {

void add_bench_command(CLI::App& app);

}  // namespace dear::cli
