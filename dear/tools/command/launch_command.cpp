#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/launch/launcher.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/backends/environment.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/options/exit_status.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/refusals.h"

namespace dear::cli {
namespace {

struct LaunchArguments {
  int ranks = 0;
  std::string grace = "30s";
  bool no_prefix = false;
  bool bind = false;
  std::string record, elastic, meet;
  std::string wait = fmt::format("{:g}s", launch::HostsOptions().wait.count());
  int hosts = 1;
  int restarts = 0;
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

// The other launchers of a job on several hosts; none of a job on one.
std::optional<launch::HostsOptions> hosts_of(const LaunchArguments& arguments) {
  const std::chrono::duration<double> wait(parse_seconds(arguments.wait));
  if (arguments.hosts == 1 && arguments.meet.empty()) return std::nullopt;
  if (arguments.hosts == 1 || arguments.meet.empty())
    throw ConfigError(
        "--hosts and --meet belong together: say on how many hosts `dear launch` is started, and at which "
        "address and port of one of them its launchers meet, as in --hosts 2 --meet node0:29400");
  if (arguments.ranks == 0)
    throw ConfigError("--ranks is missing: say how many ranks to start on this host, as in -n 4");
  const std::size_t colon = arguments.meet.rfind(':');
  int port = 0;
  if (colon != std::string::npos)
    std::from_chars(arguments.meet.data() + colon + 1, arguments.meet.data() + arguments.meet.size(), port);
  if (colon == 0 || port < 1 || port > 65'535 ||
      fmt::format("{}:{}", arguments.meet.substr(0, colon), port) != arguments.meet)
    throw ConfigError(fmt::format(
        "--meet: '{}' must be the address of a host and a port, 1 to 65535, as node0:29400", arguments.meet));
  std::string address = arguments.meet.substr(0, colon);
  if (address.starts_with('[') && address.ends_with(']')) address = address.substr(1, address.size() - 2);
  return launch::HostsOptions{.hosts = arguments.hosts,
                              .address = std::move(address),
                              .port = port,
                              .ranks = arguments.ranks,
                              .secret = read_secret(read_launch_environment().secret_file),
                              .wait = wait};
}

// "3:8" begins with 8 ranks and may go on with 3; "" with as many as at first.
int least_ranks(LaunchArguments& arguments) {
  if (arguments.elastic.empty()) return 0;
  const std::size_t colon = arguments.elastic.find(':');
  int least = 0, most = 0;
  const auto number = [&](std::string_view text, int& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && value >= 1;
  };
  const std::string_view text = arguments.elastic;
  if (colon == std::string::npos || !number(text.substr(0, colon), least) ||
      !number(text.substr(colon + 1), most) || least > most)
    throw ConfigError(fmt::format("--elastic: '{}' must be two numbers of ranks, as 3:8", arguments.elastic));
  if (arguments.ranks != 0 && arguments.ranks != most && arguments.hosts == 1)
    throw ConfigError(
        fmt::format("--elastic {} begins with {} ranks, and --ranks says {}: leave out one of both",
                    arguments.elastic, most, arguments.ranks));
  arguments.ranks = most;
  return least;
}

void run_launch(const CLI::App& command, LaunchArguments& arguments) {
  const std::vector<std::string> program = program_of(command);
  std::optional<launch::HostsOptions> hosts = hosts_of(arguments);
  const int least = least_ranks(arguments);
  if (arguments.ranks == 0) throw ConfigError("--ranks is missing: say how many ranks to start, as in -n 4");
  const launch::Launcher launcher({.ranks = arguments.ranks,
                                   .command = program,
                                   .prefix = !arguments.no_prefix,
                                   .bind = arguments.bind,
                                   .record = arguments.record,
                                   .restarts = arguments.restarts,
                                   .least_ranks = least,
                                   .hosts = std::move(hosts),
                                   .grace = std::chrono::duration<double>(parse_seconds(arguments.grace))});
  if (const int code = launcher.run(); code != 0) {
    throw ExitStatus{code};
  }
}

}  // namespace

void add_launch_command(CLI::App& app) {
  auto arguments = std::make_shared<LaunchArguments>();
  CLI::App* const command =
      app.add_subcommand("launch", "Start a program as all ranks of a job, on this host or on several")
          ->prefix_command();
  const OptionAdder add(*command);
  // CLI11 stops at the first word that it does not know and leaves it and the rest as they are, which is what
  // we want of PROGRAM; but "--" it accepts only before a positional argument. So there is one, which refuses
  // every word.
  add("PROGRAM", arguments->unused, "[ARGUMENTS...]", "What to start, with its arguments")
      ->check([](const std::string&) { return std::string("is left to the rest of the words"); });
  command->validate_positionals();
  add("-n,--ranks", arguments->ranks, "N",
      fmt::format("Ranks to start on this host, 1 to {}", launch::kMostRanks))
      ->check(CLI::Range(1, launch::kMostRanks));
  add.with_default("--hosts", arguments->hosts, "N",
                   "Hosts of the job: `dear launch` is started on each, with the same --hosts and --meet")
      ->check(CLI::Range(1, launch::kMostRanks));
  add("--meet", arguments->meet, "HOST:PORT",
      "Address and free port of one of the hosts, where their launchers meet; that one leads the job");
  add.with_default("--wait", arguments->wait, "TIME", "Time for all hosts to come");
  add("--elastic", arguments->elastic, "MIN:MAX",
      "Start MAX ranks, on all hosts together. Where one fails, those of a program with dear.Elastic go on "
      "without it, if MIN are "
      "left; a rank that fails twice without progress is not started again, down to MIN");
  add.with_default("--restarts", arguments->restarts, "N", "Start the ranks again so often where one fails")
      ->check(CLI::NonNegativeNumber);
  add.with_default("--grace", arguments->grace, "TIME",
                   "Time from SIGTERM, to a rank or to the launcher, to SIGKILL");
  command->add_flag("--no-prefix", arguments->no_prefix,
                    "Let ranks write straight to this output, without \"[rank] \" before each line");
  command->add_flag("--bind", arguments->bind,
                    "Keep each rank on its part of the cores; for a host that has nothing else to do");
  add("--record", arguments->record, "DIR",
      "Write the flight records of the ranks there, for `dear diagnose DIR`");
  command->footer(
      "The program and its arguments follow the options. Ranks find the variables of torchrun (RANK, "
      "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...) and OMP_NUM_THREADS, their share of the cores, "
      "unless it is set. Rank 0 reads the standard input unless that is a terminal. SIGINT, SIGTERM, SIGHUP, "
      "SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to all ranks; a second SIGTERM or SIGINT kills them. The "
      "exit code is that of the first rank that failed, 128 + signal for one that was killed.");
  command->callback([command, arguments] { run_launch(*command, *arguments); });
}

}  // namespace dear::cli
