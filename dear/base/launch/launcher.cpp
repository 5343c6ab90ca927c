#include "dear/base/launch/launcher.h"

#include <optional>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/launch/follower.h"
#include "dear/base/launch/hosts.h"
#include "dear/base/launch/pipe.h"
#include "dear/base/launch/supervisor.h"
#include "dear/base/os/memory_folder.h"
#include "dear/base/vocabulary/error.h"

namespace dear::launch {
namespace {
constexpr int kWrongUsage = 2;
}

Launcher::Launcher(LaunchOptions options) : options_(std::move(options)) {
  if (options_.ranks < 1 || options_.ranks > kMostRanks) {
    throw ConfigError(
        fmt::format("cannot start {} ranks: give a number from 1 to {}", options_.ranks, kMostRanks));
  }
  if (options_.least_ranks == 0) options_.least_ranks = options_.ranks;
  options_.elastic = options_.least_ranks < options_.ranks;
  if (options_.restarts < 0 || options_.least_ranks < 1 || options_.least_ranks > options_.ranks)
    throw ConfigError(
        fmt::format("{} restarts with {} to {} ranks cannot be: give at least 0, and from 1 to {} ranks",
                    options_.restarts, options_.least_ranks, options_.ranks, options_.ranks));
  if (options_.command.empty() || options_.command.front().empty()) {
    throw ConfigError("no program to launch: name it after the options");
  }
}

int Launcher::run() const {
  if (!options_.hosts) return run(options_, nullptr);
  HostsOptions hosts = *options_.hosts;
  hosts.say = [&](const std::string& sentence) {
    write_all(STDERR_FILENO, fmt::format("{}: {}\n", options_.who, sentence));
  };
  const MetHosts met = meet_hosts(hosts);
  if (met.leader) return Follower(options_, *met.leader).run();
  LaunchOptions options = options_;
  const int total = met.hosts->all_ranks();
  int code = kWrongUsage;
  try {
    if (options.elastic && options.ranks != total)
      throw ConfigError(fmt::format("--elastic begins with {} ranks, and {} hosts start {}: give {}",
                                    options.ranks, met.hosts->count(), total, total));
    if (!options.elastic) options.ranks = options.least_ranks = total;
    code = run(options, met.hosts.get());
  } catch (...) {
    met.hosts->end(code);
    throw;
  }
  met.hosts->end(code);
  return code;
}

int Launcher::run(LaunchOptions options, Hosts* hosts) const {
  Restarts restarts(options.least_ranks, options.ranks, options.restarts);
  std::optional<os::MemoryFolder> folder;  // of ranks that come and go
  if (options.elastic)
    options.environment.emplace_back("DEAR_ELASTIC_FOLDER", folder.emplace().path() + "/state");
  for (;;) {
    std::optional<int> ranks;
    int code = 0;
    {
      Supervisor job(options, restarts, hosts);
      code = job.run();
      ranks = job.next_start();
    }
    if (!ranks) return code;
    options.ranks = *ranks;
    if (hosts == nullptr) continue;
    // A host that is lost may come back.
    const Deadline deadline = Deadline::after(options.hosts->wait);
    while (options.elastic && options.ranks > options.least_ranks && hosts->hosts_of(options.ranks).empty())
      --options.ranks;
    if (!hosts->wait_for_room(options.ranks, deadline)) return code;
  }
}

}  // namespace dear::launch
