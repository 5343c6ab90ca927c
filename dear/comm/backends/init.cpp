#include "dear/comm/backends/init.h"

#include <utility>
#include <variant>

#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/backends.h"
#include "dear/comm/backends/environment.h"
#include "dear/comm/backends/in_grid.h"
#include "dear/comm/group/exchange.h"
#include "dear/comm/shaped/pair_links.h"
#include "dear/comm/shaped/shaped.h"

namespace dear {
namespace {

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
  return Group(std::move(choice.backend), {.timeout = options.timeout});
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
