#pragma once

namespace CLI {
class App;
}

namespace dear::cli {

// `dear profile`: measures a TorchScript module, layer by layer, into a workload file for `dear plan`,
// `simulate` and `replay`.
void add_profile_command(CLI::App& app);

}  // namespace dear::cli
