#include "dear/comm/backends/init.h"

#include <cstdlib>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "dear/base/admission/handshake.h"
#include "dear/base/admission/wires.h"
#include "dear/base/liveness/liveness.h"
#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/comm/backends/backends.h"
#include "dear/comm/backends/environment.h"
#include "dear/comm/backends/in_grid.h"
#include "dear/comm/gloo/meeting/meeting.h"
#include "dear/comm/group/exchange.h"
#include "dear/comm/shaped/pair_links.h"
#include "dear/comm/shaped/shaped.h"

namespace dear {
namespace {

// The address of this host for ranks of other hosts, "" where it has none.
std::string address_for_others(const LaunchEnvironment& environment) {
  try {
    std::string address =
        environment.network_interface.empty()
            ? channels::own_address({.rank = environment.rank,
                                     .size = environment.size,
                                     .master_address = environment.master_address,
                                     .master_port = environment.master_port,
                                     .deadline = Deadline::after(std::chrono::seconds(1))})
            : admission::address_of_interface(environment.network_interface, environment.rank);
    return address.starts_with("127.") || address == "::1" ? "" : address;
  } catch (const Error&) {
    return "";
  }
}

// Ranks on a modelled network do without: their exchanges would take the network's time. They say so, since
// others may have been started without it.
void watch(const Group& group, const LaunchEnvironment& environment) {
  if (group.size() == 1) return;
  const bool on_one_host = group.shares_memory();
  // Memory that only these ranks have carries what else the key is made of.
  std::string secret;
  if (!on_one_host) secret = read_secret(environment.secret_file);
  group.watch(
      liveness::Liveness::make({.rank = group.rank(),
                                .size = group.size(),
                                .epoch = environment.restarts,
                                .key = admission::job_key(secret, environment.job),
                                .address = on_one_host ? "" : address_for_others(environment),
                                .takes_part = group.modelled_network().empty(),
                                .deadline = Deadline::after(group.timeout())},
                               [&](const std::string& mine) { return all_gather_text(group, mine); }));
}

// A batch script for Slurm runs as one task, whatever the job was given; srun starts the others.
void tell_of_unused_tasks(const LaunchEnvironment& environment, const Say& say) {
  const char* const job = std::getenv("SLURM_JOB_ID");
  const char* const tasks = std::getenv("SLURM_NTASKS");
  if (environment.launcher != "none" || job == nullptr || tasks == nullptr || std::atoi(tasks) < 2) return;
  tell(say, fmt::format("this process is alone, though Slurm's job {} has {} tasks: start it by srun",
                        printable(job), printable(tasks)));
}

// Ranks over messages on links of their own.
Group init_on_pairs(const PairCluster& cluster, const InitOptions& options, const Placement& placement) {
  const LaunchEnvironment& environment = placement.environment;
  require_ranks(cluster, environment.size);
  if (environment.local_size != environment.size)
    throw ConfigError(fmt::format(
        "links of pairs are modelled on the clock of one host, and {} started {} of {} ranks here: "
        "start all on one host, or leave the modelled network '{}' out",
        environment.launcher, environment.local_size, environment.size, cluster.name));
  ChannelsChoice choice = choose_channels(options.backend, placement);
  if (environment.rank == 0) tell(options.say, fmt::format("backend {}: {}", choice.name, choice.reason));
  const Group group(
      backends::make_shaped(std::move(choice.channels), cluster, {.reproducible = options.reproducible}),
      {.timeout = options.timeout});
  watch(group, environment);
  agree(group, "modelled network",
        fmt::format("{} ({:016x})", cluster.name, Digest().add(to_json(cluster)).value()));
  return group;
}

}  // namespace

Group init(const InitOptions& options) {
  const Placement placement{
      .environment = options.environment ? *options.environment : read_launch_environment(),
      .deadline = Deadline::after(options.meeting.value_or(options.timeout)),
      .reproducible = options.reproducible};
  if (!options.environment) tell_of_unused_tasks(placement.environment, options.say);
  if (options.grid && options.network) {
    throw ConfigError("a grid has networks of its own: give a grid or a network, not both");
  }
  if (options.network) {
    if (const auto* const pairs = std::get_if<PairCluster>(&*options.network))
      return init_on_pairs(*pairs, options, placement);
  }
  BackendChoice choice = choose_backend(options.backend, placement);
  if (options.grid) {
    PutInGrid in_grid = put_in_grid(std::move(choice.backend), choice.name, *options.grid, placement);
    choice.backend = std::move(in_grid.backend);
    choice.reason += "; " + in_grid.note;
  }
  if (placement.environment.rank == 0 && placement.environment.size > 1) {
    tell(options.say, fmt::format("backend {}: {}", choice.name, choice.reason));
  }
  if (options.network) {
    choice.backend = backends::make_shaped(std::move(choice.backend), std::get<Network>(*options.network));
  }
  Group group(std::move(choice.backend), {.timeout = options.timeout});
  watch(group, placement.environment);
  return group;
}

void watch(const Group& group) {
  LaunchEnvironment environment;
  try {
    environment = read_launch_environment();
  } catch (const ConfigError&) {  // the program met by itself
  }
  watch(group, environment);
}

Group group_in_grid(std::unique_ptr<Backend> backend, const GridSettings& settings,
                    const InitOptions& options) {
  const std::string name = backend->description();
  PutInGrid in_grid = put_in_grid(std::move(backend), name, settings,
                                  {.environment = {},
                                   .deadline = Deadline::after(options.timeout),
                                   .reproducible = options.reproducible});
  return Group(std::move(in_grid.backend), {.timeout = options.timeout});
}

}  // namespace dear
