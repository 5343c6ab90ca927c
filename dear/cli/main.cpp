#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/cli/commands.h"
#include "dear/cli/exit_status.h"

namespace dear::cli {
namespace {

// The commands in the order of `dear --help`.
constexpr std::array kCommands{
    add_train_command, add_launch_command, add_profile_command,  add_replay_command, add_simulate_command,
    add_plan_command,  add_tune_command,   add_study_command,    add_models_command, add_clusters_command,
    add_trace_command, add_bench_command,  add_aggregate_command};

// The innermost command that the arguments name.
const CLI::App& chosen(const CLI::App& app) {
  const auto inner = app.get_subcommands();
  return inner.empty() ? app : chosen(*inner.front());
}

std::string full_name(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  return (parent ? full_name(*parent) + " " : "") + command.get_name();
}

// The sentence for a wrong call. CLI11 complains of a missing command where the user gave an unknown one.
std::string message_of(const CLI::ParseError& error, const CLI::App& command) {
  const std::vector<std::string> unknown = command.remaining();
  const bool expects_command = command.get_require_subcommand_min() > 0;
  return expects_command && !unknown.empty() ? "unknown command or option " + unknown.front() : error.what();
}

int report(const CLI::App& app, std::string message, int code) {
  const std::string name = full_name(chosen(app));
  message.erase(std::find(message.begin(), message.end(), '\n'), message.end());
  fmt::print(stderr, "{}: {}{}\n", name, message,
             code == kExitWrongUsage ? fmt::format(" (see {} --help)", name) : "");
  return code;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Data-parallel training with communication hidden under the backward and the next forward pass",
      "dear");
  app.set_version_flag("--version", "dear " DEAR_VERSION);
  app.require_subcommand(1);
  for (const auto add : kCommands) {
    add(app);
  }
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error)
                                      : report(app, message_of(error, chosen(app)), kExitWrongUsage);
  } catch (const ExitStatus& status) {
    return status.code;
  } catch (const ConfigError& error) {
    return report(app, error.what(), kExitWrongUsage);
  } catch (const std::exception& error) {
    return report(app, error.what(), kExitFailure);
  }
}

}  // namespace
}  // namespace dear::cli

int main(int argc, char** argv) {
  const int code = dear::cli::run(argc, argv);
  // Only now is it known whether the output was written: a disk may be full.
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return code;
  fmt::print(stderr, "{}\n", dear::with_errno("dear: cannot write to standard output", errno));
  return code != 0 ? code : dear::cli::kExitFailure;
}
