#pragma once

namespace CLI {
class App;
}

namespace dear::cli {

// `dear replay`: a workload's computation timed, its communication real, under one policy or several; beside
// it, what the simulator says. Starts its workers itself unless a launcher's environment says that this
// process is one of them.
void add_replay_command(CLI::App& app);

}  // namespace dear::cli
