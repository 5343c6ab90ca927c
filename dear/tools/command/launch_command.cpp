#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/launch/launcher.h"
#include "dear/tools/options/exit_status.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/refusals.h"

namespace dear::cli {
namespace {

struct LaunchArguments {
  int ranks = 1;
  std::string grace = "30s";
  bool no_prefix = false;
  bool bind = false;
  std::string unused;
};

// The words that CLI11 did not take: an unknown option, or the program and its arguments, perhaps after "--".
std::vector<std::string> program_of(const CLI::App& command) {
  std::vector<std::string> words = command.remaining();
  if (!words.empty() && words.front() == "--") {
    words.erase(words.begin());
  } else if (!words.empty() && words.front().starts_with('-')) {
    throw ConfigError(cli::unknown_word(words.front(), command));
  }
  return words;
}

void run_launch(const CLI::App& command, const LaunchArguments& arguments) {
  const launch::Launcher launcher({.ranks = arguments.ranks,
                                   .command = program_of(command),
                                   .prefix = !arguments.no_prefix,
                                   .bind = arguments.bind,
                                   .grace = std::chrono::duration<double>(parse_seconds(arguments.grace))});
  if (const int code = launcher.run(); code != 0) {
    throw ExitStatus{code};
  }
}

}  // namespace

void add_launch_command(CLI::App& app) {
  auto arguments = std::make_shared<LaunchArguments>();
  CLI::App* const command =
      app.add_subcommand("launch", "Start a program as all ranks of a job on this host")->prefix_command();
  const OptionAdder add(*command);
  // CLI11 stops at the first word that it does not know and leaves it and the rest as they are, which is what
  // we want of PROGRAM; but "--" it accepts only before a positional argument. So there is one, which refuses
  // every word.
  add("PROGRAM", arguments->unused, "[ARGUMENTS...]", "What to start, with its arguments")
      ->check([](const std::string&) { return std::string("is left to the rest of the words"); });
  command->validate_positionals();
  add("-n,--ranks", arguments->ranks, "N", fmt::format("Ranks to start, 1 to {}", launch::kMostRanks))
      ->required()
      ->check(CLI::Range(1, launch::kMostRanks));
  add.with_default("--grace", arguments->grace, "TIME",
                   "Time from SIGTERM, to a rank or to the launcher, to SIGKILL");
  command->add_flag("--no-prefix", arguments->no_prefix,
                    "Let ranks write straight to this output, without \"[rank] \" before each line");
  command->add_flag("--bind", arguments->bind,
                    "Keep each rank on its part of the cores; for a host that has nothing else to do");
  command->footer(
      "The program and its arguments follow the options. Ranks find the variables of torchrun (RANK, "
      "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...) and OMP_NUM_THREADS, their share of the cores, "
      "unless it is set. Rank 0 reads the standard input unless that is a terminal. SIGINT, SIGTERM, SIGHUP, "
      "SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to all ranks; a second SIGTERM or SIGINT kills them. The "
      "exit code is that of the first rank that failed, 128 + signal for one that was killed.");
  command->callback([command, arguments] { run_launch(*command, *arguments); });
}

}  // namespace dear::cli
