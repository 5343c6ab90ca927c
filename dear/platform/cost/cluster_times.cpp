#include "dear/platform/cost/cluster_times.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/platform/cost/chunk_seconds.h"

namespace dear::cost {
namespace {

using AlgorithmTime = ClusterTimes::AlgorithmTime;
using AlgorithmTimes = std::vector<AlgorithmTime>;

// What an algorithm takes in one dimension: start-ups one after another, and the part of the vector that
// crosses one link.
struct Load {
  double messages = 0;
  double part = 0;
};

double log2_up(int members) { return std::bit_width(static_cast<unsigned>(members) - 1); }
double all_but_one(int members) { return static_cast<double>(members - 1) / members; }

Load ring_gather(int members) { return {.messages = members - 1.0, .part = all_but_one(members)}; }
Load chain_broadcast(int members) { return {.messages = members - 1.0, .part = members > 1 ? 1.0 : 0.0}; }

Load bruck_gather(int members) { return {.messages = log2_up(members), .part = all_but_one(members)}; }
Load bruck_broadcast(int members) {
  return {.messages = 2 * log2_up(members), .part = 2 * all_but_one(members)};
}

Load direct_gather(int members) { return members > 1 ? Load{.messages = 1, .part = 1.0 / members} : Load{}; }
Load direct_broadcast(int members) {
  const auto [messages, part] = direct_gather(members);
  return {.messages = 2 * messages, .part = 2 * part};
}

// Followers give their block to a leader first and get all others last; see the note on leaders in
// platform/algorithm/halving_doubling.cpp. The first leaders have most to send.
Load doubling_gather(int members) {
  const int leaders = static_cast<int>(std::bit_floor(static_cast<unsigned>(members)));
  const int followers = members - leaders;
  double messages = 0;
  double blocks = 0;
  for (int held = 1; held < leaders; held *= 2) {
    messages += 1;
    blocks += held + std::min(held, followers);
  }
  if (followers > 0) {
    messages += 2;
    blocks += 1 + (members - 1);
  }
  return {.messages = messages, .part = blocks / members};
}

// The scatter leaves the first leader what it had at the start of the gather; followers get all at the end.
Load halving_broadcast(int members) {
  Load load = doubling_gather(members);
  const double rounds = std::bit_width(static_cast<unsigned>(members)) - 1;
  const bool followed = !std::has_single_bit(static_cast<unsigned>(members));
  load.messages += rounds - (followed ? 1 : 0);
  load.part += static_cast<double>(members - (followed ? 2 : 1)) / members;
  return load;
}

struct Stage {
  std::string_view name;
  std::optional<Wiring> wiring;  // any without one
  Load (*gather)(int members);
  Load (*broadcast)(int members);
  [[nodiscard]] bool suits(const Dimension& dimension) const {
    return !wiring || *wiring == dimension.wiring;
  }
};

constexpr Stage kStages[] = {
    {"ring", std::nullopt, ring_gather, chain_broadcast},
    {"halving-doubling", Wiring::switched, doubling_gather, halving_broadcast},
    {"bruck", Wiring::switched, bruck_gather, bruck_broadcast},
    {"direct", Wiring::full_mesh, direct_gather, direct_broadcast},
};

constexpr std::string_view kAny = "*";

// What the options ask for.
struct Choice {
  bool flat_ring = false;
  bool pipelined_ring = false;
  bool double_tree = false;
  // One for each dimension, or none at all.
  std::vector<std::string_view> stages{};
};

Choice parse(std::string_view algorithm, std::size_t dimensions) {
  constexpr std::string_view kPrefix = "hierarchical:";
  const std::vector<std::string_view> any(dimensions, kAny);
  if (algorithm == "auto") return {.flat_ring = dimensions > 1, .double_tree = true, .stages = any};
  if (algorithm == "hierarchical" || is_chunk_planner(algorithm)) return {.stages = any};
  if (algorithm == "double-tree") return {.double_tree = true};
  if (algorithm == "pipelined-ring") return {.pipelined_ring = true};
  if (algorithm == "nccl") return {.pipelined_ring = true, .double_tree = true};
  if (algorithm == "ring" && dimensions > 1) return {.flat_ring = true};
  if (!algorithm.starts_with(kPrefix)) return {.stages = std::vector(dimensions, algorithm)};
  Choice choice;
  for (std::size_t begin = kPrefix.size(); begin <= algorithm.size();) {
    choice.stages.push_back(algorithm.substr(begin, algorithm.find(',', begin) - begin));
    begin += choice.stages.back().size() + 1;
  }
  if (choice.stages.size() != dimensions) return {};
  return choice;
}

// Without those that another one beats or equals at every size.
AlgorithmTimes without_worse(AlgorithmTimes times) {
  std::stable_sort(times.begin(), times.end(), [](const AlgorithmTime& a, const AlgorithmTime& b) {
    return a.start_up != b.start_up ? a.start_up < b.start_up : a.per_byte < b.per_byte;
  });
  AlgorithmTimes good;
  for (AlgorithmTime& time : times) {
    if (good.empty() || time.per_byte < good.back().per_byte) good.push_back(std::move(time));
  }
  return good;
}

// Seconds a byte where all links of a member work at once.
double beta_of(const Dimension& dimension) {
  return dimension.link.beta_seconds_per_byte * dimension.oversubscription / dimension.links;
}

// Where n members have L links and k ranks each, every rank has 1/k of the vector to exchange, and L/k links
// to do so: what a byte of the vector takes does not depend on k. A broadcast comes through all inner
// dimensions on its way out of a member.
AlgorithmTimes hierarchical(const std::vector<Dimension>& dimensions,
                            const std::vector<std::string_view>& stages, Load (*Stage::*load_of)(int)) {
  if (stages.empty()) return {};
  AlgorithmTimes times{{.algorithm = dimensions.size() > 1 ? "hierarchical:" : ""}};
  double slowest = 0;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    const Dimension& dimension = dimensions[i];
    slowest = std::max(slowest, beta_of(dimension));
    const double beta = load_of == &Stage::broadcast ? slowest : beta_of(dimension);
    AlgorithmTimes longer;
    for (const Stage& stage : kStages) {
      if (!stage.suits(dimension) || (stages[i] != kAny && stages[i] != stage.name)) continue;
      const Load load = (stage.*load_of)(dimension.size);
      for (const AlgorithmTime& time : times) {
        longer.push_back({.start_up = time.start_up + load.messages * dimension.link.alpha_seconds,
                          .per_byte = time.per_byte + load.part * beta,
                          .algorithm = fmt::format("{}{}{}", time.algorithm, i > 0 ? "," : "", stage.name)});
      }
    }
    times = without_worse(std::move(longer));
  }
  return times;
}

// A stream crosses the border of a member by all its links.
Link slowest_of(const std::vector<Dimension>& dimensions) {
  Link slowest;
  for (const Dimension& dimension : dimensions) {
    slowest.alpha_seconds = std::max(slowest.alpha_seconds, dimension.link.alpha_seconds);
    slowest.beta_seconds_per_byte = std::max(slowest.beta_seconds_per_byte, beta_of(dimension));
  }
  return slowest;
}

AlgorithmTime flat_ring(const std::vector<Dimension>& dimensions, Load load) {
  const Link slowest = slowest_of(dimensions);
  return {.start_up = load.messages * slowest.alpha_seconds,
          .per_byte = load.part * slowest.beta_seconds_per_byte,
          .algorithm = "ring"};
}

// From the first rank to the last: all hops of the ring but the one that closes it.
AlgorithmTime pipelined_ring(const std::vector<Dimension>& dimensions, double part) {
  AlgorithmTime time{.per_byte = part * slowest_of(dimensions).beta_seconds_per_byte,
                     .algorithm = "pipelined-ring"};
  int members = 1;
  for (auto dimension = dimensions.rbegin(); dimension != dimensions.rend(); ++dimension) {
    time.start_up += members * (dimension->size - 1) * dimension->link.alpha_seconds;
    members *= dimension->size;
  }
  return time;
}

// Down the trees, or up.
AlgorithmTimes double_tree(const std::vector<Dimension>& dimensions) {
  AlgorithmTime time{.algorithm = "double-tree"};
  for (const Dimension& dimension : dimensions) {
    if (dimension.wiring == Wiring::ring) return {};
    time.start_up += 2 * log2_up(dimension.size) * dimension.link.alpha_seconds;
  }
  if (dimensions.front().size > 1) time.per_byte = slowest_of(dimensions).beta_seconds_per_byte;
  return {time};
}

AlgorithmTimes twice(AlgorithmTimes times) {
  for (AlgorithmTime& time : times) {
    time.start_up *= 2;
    time.per_byte *= 2;
  }
  return times;
}

AlgorithmTimes joined(AlgorithmTimes times, const AlgorithmTimes& more) {
  times.insert(times.end(), more.begin(), more.end());
  return without_worse(std::move(times));
}

// Adds the launch of a kernel to collectives that follow each other.
void launch(AlgorithmTimes& times, double seconds) {
  for (AlgorithmTime& time : times) time.start_up = std::max(time.start_up, seconds);
  times = without_worse(std::move(times));
}

// Those of more than one member, or the innermost.
std::vector<Dimension> dimensions_that_count(const Cluster& cluster) {
  validate(cluster);
  std::vector<Dimension> dimensions = cluster.dimensions;
  std::erase_if(dimensions, [](const Dimension& dimension) { return dimension.size == 1; });
  if (dimensions.empty()) dimensions.push_back(cluster.dimensions.front());
  return dimensions;
}

[[noreturn]] void refuse(const Cluster& cluster, const std::vector<Dimension>& dimensions,
                         std::string_view algorithm) {
  std::string stages;
  for (const Dimension& dimension : dimensions) {
    std::vector<std::string_view> names;
    for (const Stage& stage : kStages) {
      if (stage.suits(dimension)) names.push_back(stage.name);
    }
    stages += fmt::format("{}{}: {}", stages.empty() ? "" : "; ", dimension.name, fmt::join(names, ", "));
  }
  std::vector<std::string_view> chunked;
  for (const ChunkPlanner& planner : chunk_planners()) chunked.push_back(planner.name);
  throw ConfigError(
      fmt::format("cluster '{}' has no algorithm '{}': use auto, ring, pipelined-ring, nccl, hierarchical, "
                  "double-tree where no dimension is a ring, themis or another that goes in chunks ({}), or "
                  "one for each dimension as in hierarchical:ring,bruck ({})",
                  cluster.name, algorithm, fmt::join(chunked, ", "), stages));
}

}  // namespace

ClusterTimes::ClusterTimes(const Cluster& cluster, const ClusterTimesOptions& options) {
  const std::vector<Dimension> dimensions = dimensions_that_count(cluster);
  const Choice choice = parse(options.algorithm, dimensions.size());
  halves_ = hierarchical(dimensions, choice.stages, &Stage::gather);
  broadcast_ = hierarchical(dimensions, choice.stages, &Stage::broadcast);
  const int ranks = cluster.ranks();
  const AlgorithmTimes trees = choice.double_tree ? double_tree(dimensions) : AlgorithmTimes{};
  if (choice.flat_ring) {
    halves_ = joined({flat_ring(dimensions, ring_gather(ranks))}, halves_);
    broadcast_ = joined({flat_ring(dimensions, chain_broadcast(ranks))}, broadcast_);
  }
  if (choice.pipelined_ring) {
    halves_ = {pipelined_ring(dimensions, ring_gather(ranks).part)};
    broadcast_ = {pipelined_ring(dimensions, chain_broadcast(ranks).part)};
  }
  all_reduce_ = joined(twice(halves_), twice(trees));
  broadcast_ = joined(std::move(broadcast_), trees);
  if (halves_.empty()) halves_ = trees;
  if (halves_.empty()) refuse(cluster, dimensions, options.algorithm);
  if (is_chunk_planner(options.algorithm)) {
    chunks_ = std::make_shared<const ChunkSeconds>(chunk_network(cluster), options.algorithm);
  }
  if (ranks > 1) {
    for (AlgorithmTimes* times : {&halves_, &all_reduce_, &broadcast_})
      launch(*times, cluster.software.launch_seconds);
  }
}

const ClusterTimes::AlgorithmTime& ClusterTimes::fastest(Collective collective, std::int64_t bytes) const {
  if (bytes < 0 || has_output(collective) || collective == Collective::barrier)
    throw ConfigError(fmt::format(
        "{} of {} bytes has no time on a cluster: give another collective, and a size of at least zero",
        name_of(collective), bytes));
  const bool half = collective == Collective::reduce_scatter || collective == Collective::all_gather;
  const std::vector<AlgorithmTime>& times =
      half ? halves_ : (collective == Collective::all_reduce ? all_reduce_ : broadcast_);
  return *std::min_element(
      times.begin(), times.end(),
      [size = static_cast<double>(bytes)](const AlgorithmTime& a, const AlgorithmTime& b) {
        return a.seconds(size) < b.seconds(size);
      });
}

bool ClusterTimes::goes_in_chunks(Collective collective, std::int64_t bytes) const {
  return chunks_ && bytes >= 0 &&
         (collective == Collective::reduce_scatter || collective == Collective::all_gather ||
          collective == Collective::all_reduce);
}

double ClusterTimes::seconds(Collective collective, std::int64_t bytes) const {
  if (goes_in_chunks(collective, bytes)) return chunks_->seconds(collective, bytes);
  return fastest(collective, bytes).seconds(static_cast<double>(bytes));
}

ChosenTime ClusterTimes::choose(Collective collective, std::int64_t bytes) const {
  if (goes_in_chunks(collective, bytes)) {
    return {.seconds = chunks_->seconds(collective, bytes), .algorithm = chunks_->algorithm()};
  }
  const AlgorithmTime& time = fastest(collective, bytes);
  return {.seconds = time.seconds(static_cast<double>(bytes)), .algorithm = time.algorithm};
}

namespace {

CollectiveTimes times_of(const Cluster& cluster, const ClusterTimesOptions& options) {
  const auto times = std::make_shared<const ClusterTimes>(cluster, options);
  const auto of = [&](Collective collective) {
    return [times, collective](std::int64_t bytes) { return times->seconds(collective, bytes); };
  };
  double farthest = 0;
  for (const Dimension& dimension : cluster.dimensions) {
    const int hops = dimension.wiring == Wiring::ring ? dimension.size / 2 : std::min(dimension.size - 1, 1);
    farthest = std::max(farthest, hops * dimension.link.alpha_seconds);
  }
  return {.ranks = cluster.ranks(),
          .reduce_scatter = of(Collective::reduce_scatter),
          .all_gather = of(Collective::all_gather),
          .all_reduce = of(Collective::all_reduce),
          .broadcast = of(Collective::broadcast),
          .launch_seconds = cluster.software.launch_seconds,
          .hold_seconds = cluster.software.hold_seconds,
          .buffer_seconds = cluster.software.buffer_seconds,
          .message_seconds = farthest};
}

// What the options of a whole cluster say for dimensions [begin, end) of those that count.
ClusterTimesOptions for_part(const ClusterTimesOptions& options, std::size_t dimensions, std::size_t begin,
                             std::size_t end) {
  const std::vector<std::string_view> stages = parse(options.algorithm, dimensions).stages;
  if (stages.empty() || options.algorithm == "auto" || options.algorithm == "hierarchical" ||
      is_chunk_planner(options.algorithm)) {
    return options;
  }
  const auto at = [&](std::size_t i) { return stages.begin() + static_cast<std::ptrdiff_t>(i); };
  return {.algorithm = fmt::format("hierarchical:{}", fmt::join(at(begin), at(end), ","))};
}

}  // namespace

CollectiveTimes times_on(const Cluster& cluster, const ClusterTimesOptions& options) {
  CollectiveTimes times = times_of(cluster, options);
  const std::vector<Dimension> dimensions = dimensions_that_count(cluster);
  if (dimensions.size() < 2 || cluster.dimensions.front().size == 1) return times;
  const auto part = [&](std::size_t begin, std::size_t end) {
    const auto at = [&](std::size_t i) { return dimensions.begin() + static_cast<std::ptrdiff_t>(i); };
    return times_of({.name = cluster.name, .dimensions = {at(begin), at(end)}, .software = cluster.software},
                    for_part(options, dimensions.size(), begin, end));
  };
  times.nodes = std::make_shared<const NodeTimes>(
      NodeTimes{.inside = part(0, 1), .across = part(1, dimensions.size())});
  return times;
}

}  // namespace dear::cost
