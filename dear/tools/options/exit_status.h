#pragma once

namespace dear::cli {

// Exit codes of the `dear` command.
inline constexpr int kExitFailure = 1;        // a failure while running
inline constexpr int kExitInterrupted = 130;  // SIGINT came, and what there was by then was reported
inline constexpr int kExitWrongUsage = 2;     // a wrong option, file or value; thrown as dear::ConfigError

// Thrown out of a subcommand's callback to end the command with `code`. Whoever throws it has already said
// why on standard error; every other exception is reported by main.
struct ExitStatus {
  int code = kExitFailure;
};

}  // namespace dear::cli
