#include "dear/tools/options/run_as_ranks.h"

#include <exception>
#include <iostream>
#include <string_view>

#include <fmt/format.h>

#include "dear/base/launch/launcher.h"
#include "dear/base/launch/own_command.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/comm/group/exchange.h"
#include "dear/tools/options/exit_status.h"

namespace dear::cli {
namespace {

[[noreturn]] void fail_as_rank(std::string_view command, int rank, const std::exception& error) {
  // Every rank throws the same MismatchError, so rank 0 reports it for all.
  if (rank == 0 || dynamic_cast<const MismatchError*>(&error) == nullptr) {
    const std::string name = fmt::format("rank {}: ", rank);
    std::string_view message = error.what();
    message = message.substr(0, message.find('\n'));
    std::cerr << fmt::format("{}: {}{}\n", command, message.starts_with(name) ? "" : name,
                             printable(message));
  }
  throw ExitStatus{dynamic_cast<const ConfigError*>(&error) != nullptr ? kExitWrongUsage : kExitFailure};
}

using RunRank = std::function<void(const Group& group, const std::string& said)>;

void run_in_group(const Ranks& ranks, const RunRank& run_rank) {
  std::string said;
  InitOptions options = ranks.group;
  options.say = [&](const std::string& sentence) { said = sentence + "\n"; };
  Group group = init(options);
  try {
    agree(group, "command", ranks.settings);
    run_rank(group, said);
  } catch (const std::exception& error) {
    group.abort(error.what());  // the peers learn the reason at once
    throw;
  }
}

}  // namespace

void run_as_ranks(const std::string& command, const std::function<Ranks(const LaunchEnvironment&)>& prepare,
                  const RunRank& run_rank) {
  const LaunchEnvironment environment = read_launch_environment();
  if (environment.size > 1) {
    try {
      run_in_group(prepare(environment), run_rank);
    } catch (const std::exception& error) {
      fail_as_rank(command, environment.rank, error);
    }
    return;
  }
  const Ranks ranks = prepare(environment);
  if (ranks.workers == 1) return run_in_group(ranks, run_rank);
  const launch::Launcher launcher({.who = command,
                                   .ranks = ranks.workers,
                                   .command = launch::own_command(kBindOption),
                                   .environment = {},
                                   .prefix = false,
                                   .ranks_say_why = true,
                                   .bind = ranks.bind});
  if (const int code = launcher.run(); code != 0) throw ExitStatus{code};
}

}  // namespace dear::cli
