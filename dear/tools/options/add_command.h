#pragma once

namespace CLI {
class App;
}

namespace dear::cli {

// Adds a command to `dear`: its options, and what it does.
using AddCommand = void (*)(CLI::App& app);

// The commands that the module of studies adds.
struct StudyCommands {
  AddCommand add_study;
  AddCommand add_aggregate;
};

}  // namespace dear::cli
