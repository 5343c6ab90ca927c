#include "dear/comm/backends/in_grid.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <netinet/in.h>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/os/file_descriptor.h"
#include "dear/base/os/host_key.h"
#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/gloo/gloo.h"
#include "dear/comm/gloo/meeting/meeting.h"
#include "dear/comm/grid/grid_backend.h"
#include "dear/comm/grid/measure.h"
#include "dear/comm/grid/named_dimension.h"
#include "dear/comm/grid/start_up_exchange.h"
#include "dear/comm/shaped/shaped.h"
#include "dear/comm/shm/shm.h"
#include "dear/platform/cluster/cluster_file.h"
#include "dear/platform/cost/chunk_planner.h"

namespace dear {
namespace {

using algorithm::Grid;
using Lines = std::vector<std::unique_ptr<Backend>>;

// In place of an interface: memory of the host.
constexpr std::string_view kMemory = "memory";

Grid grid_of(const GridSettings& settings) {
  Grid grid{settings.sizes};
  if (settings.cluster) {
    for (const Dimension& dimension : settings.cluster->dimensions) grid.sizes.push_back(dimension.size);
  }
  return grid;
}

// What ranks compare. Interfaces may have other names on other hosts.
std::string text_of(const GridSettings& settings) {
  return fmt::format("{}{}{}, {}, {} chunks{}", fmt::join(grid_of(settings).sizes, "x"),
                     settings.cluster ? fmt::format(" of cluster {} ({:016x})", settings.cluster->name,
                                                    Digest().add(to_json(*settings.cluster)).value())
                                      : "",
                     settings.modelled ? ", modelled" : "", settings.algorithm, settings.chunks,
                     settings.interfaces.empty() ? "" : ", interfaces by dimension");
}

void agree_on(Backend& whole, const GridSettings& settings, Deadline deadline) {
  const std::vector<std::string> texts = grid::gather_texts(whole, text_of(settings), deadline);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts[0]) {
      throw MismatchError(
          fmt::format("the ranks disagree on the grid: rank {} has \"{}\", rank 0 has \"{}\"; give every "
                      "rank the same",
                      rank, texts[rank], texts[0]));
    }
  }
}

// A port of this host that is free now.
int free_port() {
  const os::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_ANY)}};
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), generic, length) != 0 || ::getsockname(socket.get(), generic, &length) != 0) {
    throw TransportError(with_errno("no port is free for the lines of a grid", errno));
  }
  return ntohs(address.sin_port);
}

// Where the ranks of lines meet: the first rank of each offers a port, one for each dimension.
struct Places {
  std::string address;
  std::vector<int> ports;
};
std::vector<Places> offer_places(Backend& whole, int dimensions, const Placement& placement) {
  const LaunchEnvironment& environment = placement.environment;
  std::string mine = channels::own_address({.rank = environment.rank,
                                            .size = environment.size,
                                            .master_address = environment.master_address,
                                            .master_port = environment.master_port,
                                            .job = environment.job,
                                            .deadline = placement.deadline});
  for (int dimension = 0; dimension < dimensions; ++dimension) mine += fmt::format(" {}", free_port());
  std::vector<Places> all;
  for (const std::string& text : grid::gather_texts(whole, mine, placement.deadline)) {
    std::istringstream words(text);
    Places& places = all.emplace_back();
    words >> places.address;
    for (int port = 0; words >> port;) places.ports.push_back(port);
  }
  return all;
}

// Gloo between the ranks of each line, on the wires of its dimension.
Lines gloo_lines(Backend& whole, const Grid& grid, const GridSettings& settings, const Placement& placement) {
  const std::vector<Places> places = offer_places(whole, grid.dimensions(), placement);
  Lines lines;
  const int rank = whole.rank();
  for (int dimension = 0; dimension < grid.dimensions(); ++dimension) {
    const int size = grid.sizes[index_of(dimension)];
    if (size == 1) {
      lines.push_back(nullptr);
      continue;
    }
    if (settings.interfaces[index_of(dimension)] == kMemory) {
      lines.push_back(nullptr);
      continue;
    }
    std::vector<int> members = grid.line(rank, dimension);
    const Places& meeting = places[index_of(members.front())];
    auto gloo = backends::make_gloo(
        {.rank = grid.coordinate(rank, dimension),
         .size = size,
         .master_address = meeting.address,
         .master_port = meeting.ports[index_of(dimension)],
         .job = fmt::format("{} dimension {} rank {}", placement.environment.job, dimension, members.front()),
         .secret = read_secret(placement.environment.secret_file),
         .interface_name = settings.interfaces[index_of(dimension)],
         .deadline = placement.deadline});
    lines.push_back(grid::make_named_dimension(std::move(gloo), dimension, std::move(members)));
  }
  return lines;
}

// Where each rank is, and a text that no other job of its host has.
struct Hosts {
  std::vector<std::uint64_t> of_rank;
  std::string job;
};
Hosts find_hosts(Backend& whole, const Placement& placement) {
  const std::string mine = fmt::format("{} {} {} {}", Digest().add(os::host_key()).value(), ::getpid(),
                                       SteadyClock::now().time_since_epoch().count(), whole.name());
  Hosts hosts;
  for (const std::string& text : grid::gather_texts(whole, mine, placement.deadline)) {
    std::istringstream(text) >> hosts.of_rank.emplace_back();
    if (hosts.job.empty()) hosts.job = text;
  }
  return hosts;
}

bool lies_inside_hosts(const Hosts& hosts, const Grid& grid, int dimension) {
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const int first = grid.line(rank, dimension).front();
    if (hosts.of_rank[index_of(rank)] != hosts.of_rank[index_of(first)]) return false;
  }
  return true;
}

// Replaces lines inside hosts by memory that their ranks share: all such, or those that are named as memory.
// The one whose buffers all others take is direct.
std::optional<grid::DirectDimension> share_memory(Lines& lines, const Backend& whole, const Hosts& hosts,
                                                  const Grid& grid, const GridSettings& settings,
                                                  const Placement& placement) {
  std::optional<grid::DirectDimension> direct;
  for (int dimension = 0; dimension < grid.dimensions(); ++dimension) {
    if (grid.sizes[index_of(dimension)] == 1) continue;
    const bool asked_for =
        !settings.interfaces.empty() && settings.interfaces[index_of(dimension)] == kMemory;
    if (!settings.interfaces.empty() && !asked_for) continue;
    if (!lies_inside_hosts(hosts, grid, dimension)) {
      if (!asked_for) continue;
      throw ConfigError(fmt::format(
          "dimension {} of the grid {} cannot go through memory: ranks of one line are on several "
          "hosts; give a network interface for it, or other sizes",
          dimension, fmt::join(grid.sizes, "x")));
    }
    std::vector<int> members = grid.line(whole.rank(), dimension);
    auto memory = backends::make_shm(
        {.rendezvous = fmt::format("{} dimension {} rank {}", hosts.job, dimension, members.front()),
         .rank = grid.coordinate(whole.rank(), dimension),
         .size = grid.sizes[index_of(dimension)],
         .deadline = placement.deadline,
         .names = members});
    if (!direct && whole.takes_any_buffer()) {
      direct = grid::DirectDimension{.dimension = dimension,
                                     .part_of = [shared = memory.get()](const Buffer& buffer, int member) {
                                       return shared->part_of(buffer, member);
                                     }};
    }
    lines[index_of(dimension)] = std::move(memory);
  }
  for (int dimension = 0; dimension < grid.dimensions(); ++dimension) {
    const auto& line = lines[index_of(dimension)];
    if (line && direct && dimension != direct->dimension && !line->takes_any_buffer()) direct.reset();
  }
  return direct;
}

// The network of a dimension that is modelled.
Network modelled_dimension(const GridSettings& settings, const cost::ChunkNetwork& network, int dimension) {
  const std::string& name = settings.cluster->dimensions[index_of(dimension)].name;
  return {.name = name.empty() ? fmt::format("dimension {}", dimension) : name,
          .link = grid::link_of_line(network, dimension)};
}

// What is no collective of shards goes over the slowest dimension.
Network slowest(const GridSettings& settings, const cost::ChunkNetwork& network) {
  Network found;
  for (int dimension = 0; dimension < network.grid.dimensions(); ++dimension) {
    if (network.grid.sizes[index_of(dimension)] == 1) continue;
    const Network one = modelled_dimension(settings, network, dimension);
    if (found.name.empty() || one.link.beta_seconds_per_byte > found.link.beta_seconds_per_byte) found = one;
  }
  return found;
}

}  // namespace

GridSettings parse_grid(std::string_view text) {
  if (names_file(text)) return {.cluster = read_cluster(std::string(text))};
  GridSettings settings;
  for (std::string_view left = text;; left.remove_prefix(left.find('x') + 1)) {
    const std::string_view word = left.substr(0, left.find('x'));
    int size = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
    if (error != std::errc{} || end != word.data() + word.size() || size < 1) {
      throw ConfigError(fmt::format(
          "'{}' is no grid: give sizes of 1 or more, the innermost first, such as 2x4, or a cluster file",
          text));
    }
    settings.sizes.push_back(size);
    if (left.find('x') == std::string_view::npos) return settings;
  }
}

void validate(const GridSettings& settings, int ranks) {
  if (settings.cluster && !settings.sizes.empty()) {
    throw ConfigError("a grid has the sizes of its cluster: give sizes or a cluster, not both");
  }
  if (settings.modelled && !settings.cluster) {
    throw ConfigError("a grid whose networks are modelled needs a cluster that says how fast they are");
  }
  if (settings.cluster) validate(*settings.cluster);
  const Grid grid = grid_of(settings);
  grid::validate(grid, ranks);
  if (!cost::is_chunk_planner(settings.algorithm)) {
    std::vector<std::string_view> names;
    for (const cost::ChunkPlanner& planner : cost::chunk_planners()) names.push_back(planner.name);
    throw ConfigError(fmt::format("there is no algorithm '{}' for a grid; choose one of {}",
                                  settings.algorithm, fmt::join(names, ", ")));
  }
  if (settings.chunks < 1 || settings.chunks > cost::kMostChunks) {
    throw ConfigError(fmt::format("vectors cannot go through a grid in {} chunks at most: give 1 to {}",
                                  settings.chunks, cost::kMostChunks));
  }
  if (!settings.interfaces.empty() && settings.interfaces.size() != grid.sizes.size()) {
    throw ConfigError(fmt::format("a grid of {} dimensions has {} interfaces: give one for each dimension",
                                  grid.dimensions(), settings.interfaces.size()));
  }
}

PutInGrid put_in_grid(std::unique_ptr<Backend> whole, std::string_view name, const GridSettings& settings,
                      const Placement& placement) {
  const Deadline deadline = placement.deadline;
  agree_on(*whole, settings, deadline);
  validate(settings, whole->size());
  const Grid grid = grid_of(settings);
  if (!settings.interfaces.empty() && name != "gloo") {
    throw ConfigError(fmt::format(
        "interfaces by dimension are Gloo's, and the ranks are on backend {}: use backend gloo, or "
        "leave them out",
        name));
  }
  Lines lines = settings.interfaces.empty() ? grid::split_into_lines(*whole, grid, deadline)
                                            : gloo_lines(*whole, grid, settings, placement);
  grid::GridParts parts{.whole = nullptr, .lines = {}};
  if (!settings.modelled && !whole->shares_memory() && name != "mpi-messages") {
    const Hosts hosts = find_hosts(*whole, placement);
    const bool several = std::count(hosts.of_rank.begin(), hosts.of_rank.end(), hosts.of_rank.front()) <
                         static_cast<std::ptrdiff_t>(hosts.of_rank.size());
    if (several || !settings.interfaces.empty())
      parts.direct = share_memory(lines, *whole, hosts, grid, settings, placement);
  }
  const cost::ChunkNetwork network = settings.cluster ? cost::chunk_network(*settings.cluster)
                                                      : grid::measure_lines(*whole, lines, grid, deadline);
  std::string note = fmt::format("grid {}, {} in up to {} chunks; {}{}", fmt::join(grid.sizes, "x"),
                                 settings.algorithm, settings.chunks,
                                 settings.modelled  ? "modelled "
                                 : settings.cluster ? ""
                                                    : "measured ",
                                 grid::describe(network));
  if (settings.modelled) {
    std::vector<int> all;
    for (int rank = 0; rank < grid.ranks(); ++rank) all.push_back(rank);
    parts.talk = whole->split({.members = std::move(all), .number = grid.dimensions() + 1}, deadline);
    for (int dimension = 0; dimension < grid.dimensions(); ++dimension) {
      auto& line = lines[index_of(dimension)];
      if (line)
        line = backends::make_shaped(std::move(line), modelled_dimension(settings, network, dimension));
    }
    if (grid.ranks() > 1) whole = backends::make_shaped(std::move(whole), slowest(settings, network));
  }
  auto planner =
      [network, options = cost::ChunkPlanOptions{.algorithm = settings.algorithm, .chunks = settings.chunks}](
          Collective collective, std::int64_t bytes) {
        return cost::make_chunk_plan(network, collective, bytes, options).plan;
      };
  parts.whole = std::move(whole);
  parts.lines = std::move(lines);
  return {.backend = grid::make_grid_backend(
              std::move(parts),
              {.grid = grid, .planner = std::move(planner), .reproducible = placement.reproducible}),
          .note = std::move(note)};
}

}  // namespace dear
