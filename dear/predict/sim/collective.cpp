#include "dear/predict/sim/collective.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/cost/chunk_planner.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/platform/fabric/chunk_play.h"

namespace dear::sim {
namespace {

// The times that playing every message found.
cost::ChunkTimes times_of(const algorithm::ChunkPlan& plan, const fabric::PlayedChunks& played) {
  const auto dimensions = plan.grid.sizes.size();
  cost::ChunkTimes times{.seconds = played.seconds,
                         .busy_seconds = std::vector<double>(dimensions, 0),
                         .sent_bytes = played.bytes,
                         .spans = {}};
  for (const fabric::ChunkSpan& span : played.spans) {
    const int dimension = plan.dimension_of(span.phase);
    times.busy_seconds[index_of(dimension)] += span.end_seconds - span.begin_seconds;
    times.spans.push_back({.phase = span.phase,
                           .dimension = dimension,
                           .begin_seconds = span.begin_seconds,
                           .end_seconds = span.end_seconds});
  }
  return times;
}

CollectiveRun run_in_chunks(const Cluster& cluster, const CollectiveOptions& options,
                            const std::string& algorithm) {
  const cost::ChunkNetwork network = cost::chunk_network(cluster);
  const cost::PlannedChunks planned = cost::make_chunk_plan(
      network, options.operation, options.bytes, {.algorithm = algorithm, .chunks = options.chunks});
  cost::ChunkTimes times;
  std::uint64_t messages = 0;
  if (options.detail == ChunkDetail::messages) {
    const fabric::PlayedChunks played = fabric::play(planned.plan, cluster);
    times = times_of(planned.plan, played);
    messages = played.messages;
  } else {
    times = cost::play(planned.plan, network);
  }
  const double launch = cost::launch_beyond_start_ups(network, options.operation);
  times.seconds += launch;
  for (cost::ChunkSpan& span : times.spans) {
    span.begin_seconds += launch;
    span.end_seconds += launch;
  }
  CollectiveRun run{.algorithm = algorithm,
                    .seconds = times.seconds,
                    .utilisation = cost::utilisation(planned.plan, times, network),
                    .plan = planned.plan.name,
                    .chunks = planned.plan.chunks(),
                    .dimensions = {},
                    .spans = std::move(times.spans),
                    .messages = messages};
  for (int dimension = 0; dimension < network.grid.dimensions(); ++dimension) {
    const double rate = network.bytes_per_second(dimension);
    const double sent = times.sent_bytes[index_of(dimension)];
    run.dimensions.push_back({.name = cluster.dimensions[index_of(dimension)].name,
                              .bytes_per_second = rate,
                              .sent_bytes = sent,
                              .busy_seconds = times.busy_seconds[index_of(dimension)],
                              .utilisation = run.seconds > 0 ? sent / (rate * run.seconds) : 0});
  }
  return run;
}

}  // namespace

std::string name_of(ChunkDetail detail) { return detail == ChunkDetail::chunks ? "chunks" : "messages"; }

ChunkDetail parse_chunk_detail(std::string_view text) {
  for (const ChunkDetail detail : {ChunkDetail::chunks, ChunkDetail::messages}) {
    if (name_of(detail) == text) return detail;
  }
  throw ConfigError(fmt::format("there is no detail '{}'; choose chunks or messages", text));
}

CollectiveRun run_collective(const Cluster& cluster, const CollectiveOptions& options,
                             const std::string& algorithm) {
  if (cost::is_chunk_planner(algorithm)) return run_in_chunks(cluster, options, algorithm);
  const double ideal = ideal_collective_seconds(cluster, options);
  const cost::ClusterTimes times(cluster, {.algorithm = algorithm});
  const double seconds = times.seconds(options.operation, options.bytes);
  return {.algorithm = algorithm,
          .seconds = seconds,
          .utilisation = seconds > 0 ? ideal / seconds : 0,
          .plan = {},
          .dimensions = {},
          .spans = {}};
}

double ideal_collective_seconds(const Cluster& cluster, const CollectiveOptions& options) {
  return cost::ideal_seconds(cost::chunk_network(cluster), options.operation, options.bytes);
}

std::string to_json(const Cluster& cluster, const CollectiveOptions& options,
                    const std::vector<CollectiveRun>& runs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CollectiveRun& run : runs) {
    nlohmann::ordered_json row{
        {"algorithm", run.algorithm}, {"seconds", run.seconds}, {"utilisation", run.utilisation}};
    if (run.chunks > 0) {
      row["plan"] = run.plan;
      row["chunks"] = run.chunks;
      if (options.detail == ChunkDetail::messages) row["messages"] = run.messages;
      for (const DimensionUse& use : run.dimensions) {
        row["dimensions"].push_back({{"name", use.name},
                                     {"sent_bytes", use.sent_bytes},
                                     {"busy_seconds", use.busy_seconds},
                                     {"utilisation", use.utilisation}});
      }
    }
    list.push_back(std::move(row));
  }
  const nlohmann::ordered_json all{{"cluster", cluster.name},
                                   {"ranks", cluster.ranks()},
                                   {"operation", name_of(options.operation)},
                                   {"bytes", options.bytes},
                                   {"detail", name_of(options.detail)},
                                   {"ideal_seconds", ideal_collective_seconds(cluster, options)},
                                   {"runs", list}};
  return all.dump(2) + "\n";
}

Trace trace_of(const Cluster& cluster, const CollectiveOptions& options, const CollectiveRun& run) {
  Trace trace{.title = fmt::format("{} of {}, {}", name_of(options.operation), format_bytes(options.bytes),
                                   run.algorithm),
              .network = fmt::format("modelled: {}", cluster.name),
              .spans = {}};
  // Lanes stand in the order in which they first appear.
  std::vector<cost::ChunkSpan> spans = run.spans;
  std::stable_sort(spans.begin(), spans.end(), [](const cost::ChunkSpan& a, const cost::ChunkSpan& b) {
    return a.dimension < b.dimension;
  });
  for (const cost::ChunkSpan& span : spans) {
    trace.spans.push_back({.rank = 0,
                           .lane = run.dimensions[index_of(span.dimension)].name,
                           .name = fmt::format("chunk {}, phase {}", span.phase.chunk, span.phase.step),
                           .activity = Activity::communication,
                           .iteration = 0,
                           .begin_seconds = span.begin_seconds,
                           .end_seconds = span.end_seconds});
  }
  return trace;
}

}  // namespace dear::sim
