#include "dear/tools/command/kfac_replay.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/trace/chrome.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/units.h"
#include "dear/methods/kfac/timeline.h"
#include "dear/systems/train_command/trace_gather.h"
#include "dear/systems/train_command/train_result.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"
#include "dear/tools/options/table.h"
#include "dear/tools/replay/graph_replay.h"

namespace dear::cli {
namespace {

using methods::kfac::WorkKind;

// The collective of a step that communicates.
GraphReplay::Carried carried_by(const cases::KfacCase& one, const methods::kfac::Work& work) {
  switch (work.kind) {
    case WorkKind::reduce_factors: {
      const methods::kfac::Plan::Group& group = one.plan.groups[work.index];
      return {.collective = group.owner ? Collective::reduce : Collective::all_reduce,
              .elements = group.elements,
              .root = group.owner.value_or(0)};
    }
    case WorkKind::broadcast:
      return {.collective = Collective::broadcast,
              .elements = one.plan.factors[work.index].packed_elements(),
              .root = one.plan.placement[work.index].value_or(0)};
    default:
      break;
  }
  return {.collective = Collective::all_reduce,
          .elements = one.on.grouping.buckets()[work.index].bytes / size_of(DType::f32)};
}

GraphReplay replay_of(const cases::KfacCase& one, int rank) {
  const methods::kfac::Iteration& iteration = one.prediction.iteration;
  GraphReplay job{.graph = iteration.graph,
                  .commit = iteration.commit,
                  .seconds = methods::kfac::step_seconds(one.on.job, one.on.grouping, one.plan, one.on.costs,
                                                         iteration, rank),
                  .carried = {},
                  .name = one.strategy.name,
                  .digest = one.plan.digest(),
                  .name_of = [&](StepId step) {
                    return methods::kfac::describe(iteration.work[step], one.on.job, one.plan);
                  }};
  for (const methods::kfac::Work& work : iteration.work)
    job.carried.push_back(work.communicates() ? std::optional(carried_by(one, work)) : std::nullopt);
  return job;
}

struct KfacRun {
  cases::KfacCase one;
  Spread iteration_seconds;
  methods::kfac::Breakdown parts;  // of rank 0, replayed
};

// The first half of the iterations warms up; whole intervals count.
KfacRun replay_one(const KfacReplaySettings& settings, const cases::KfacCase& one, const Group& group,
                   std::optional<Trace>& trace) {
  const auto interval = static_cast<std::int64_t>(one.intervals.inverses);
  const std::int64_t iterations = std::max(settings.iterations, 3 * interval + 1);
  const Replayed run = replay(replay_of(one, group.rank()), iterations, group);
  std::vector<double> commits;
  for (const conductor::StepSpan& span : run.spans)
    if (span.which.step == one.prediction.iteration.commit) commits.push_back(span.end_seconds);
  const std::int64_t first = (iterations / 2 + interval - 1) / interval * interval;
  const std::int64_t last = (iterations - 1) / interval * interval;
  if (!settings.trace.empty()) {
    Trace mine = methods::kfac::to_trace(one.on.job, one.plan, one.prediction.iteration, run.spans,
                                         group.modelled_network(), group.rank());
    mine.title =
        fmt::format("dear replay, policy {}, {}", one.strategy.name, counted(index_of(group.size()), "rank"));
    trace = train_command::gather_trace(group, mine);
  }
  return {.one = one,
          .iteration_seconds =
              spread_of({run.iteration_seconds.begin() + first, run.iteration_seconds.begin() + last}),
          .parts = methods::kfac::break_down(one.prediction.iteration, run.spans,
                                             commits[static_cast<std::size_t>(first)],
                                             commits[static_cast<std::size_t>(last)], last - first)};
}

std::string replayed_table(const std::vector<KfacRun>& runs) {
  Table table({"policy", "", "passes", "gradients", "factors", "factors sent", "inverses", "inverses sent",
               "update", "iteration", "replayed / simulated"},
              {.left_columns = 2});
  for (const KfacRun& run : runs) {
    const methods::kfac::Breakdown& simulated = run.one.prediction.parts;
    for (const auto& [what, parts] : {std::pair("replayed", run.parts), std::pair("simulated", simulated)})
      table.add(
          {what == std::string("replayed") ? run.one.strategy.name : "", what, format_seconds(parts.passes),
           format_seconds(parts.gradients), format_seconds(parts.factors), format_seconds(parts.factors_sent),
           format_seconds(parts.inverses), format_seconds(parts.inverses_sent), format_seconds(parts.update),
           format_seconds(parts.total()),
           what == std::string("replayed") ? fmt::format("{:.3f}", parts.total() / simulated.total()) : ""});
  }
  return table.to_string();
}

nlohmann::ordered_json json_of(const methods::kfac::Breakdown& parts) {
  return {{"passes_seconds", parts.passes},     {"exposed_gradients_seconds", parts.gradients},
          {"factors_seconds", parts.factors},   {"exposed_factors_seconds", parts.factors_sent},
          {"inverses_seconds", parts.inverses}, {"exposed_inverses_seconds", parts.inverses_sent},
          {"update_seconds", parts.update}};
}

std::string to_json(const std::vector<KfacRun>& runs, const Group& group) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const KfacRun& run : runs)
    rows.push_back({{"model", run.one.on.scenario->workload.name},
                    {"ranks", group.size()},
                    {"policy", run.one.strategy.name},
                    {"network", group.modelled_network()},
                    {"backend", group.description()},
                    {"iteration_seconds",
                     {{"median", run.iteration_seconds.median},
                      {"p10", run.iteration_seconds.p10},
                      {"p90", run.iteration_seconds.p90}}},
                    {"replayed", json_of(run.parts)},
                    {"simulated", json_of(run.one.prediction.parts)},
                    {"simulated_seconds", run.one.prediction.iteration_seconds}});
  return rows.dump(2) + "\n";
}

}  // namespace

std::string describe(const KfacReplaySettings& settings) {
  std::string text =
      fmt::format("K-FAC every {} and {}, iterations {}, trace {}", settings.options.intervals.factors,
                  settings.options.intervals.inverses, settings.iterations, !settings.trace.empty());
  for (const methods::kfac::Strategy& strategy : settings.options.strategies)
    text += fmt::format(", {} {} {}", strategy.name, cases::name_of(strategy.fusion),
                        cases::name_of(strategy.placement));
  return text;
}

void replay_kfac(const KfacReplaySettings& settings, const Group& group, const std::string& said) {
  std::vector<KfacRun> runs;
  std::optional<Trace> trace;
  for (const cases::KfacCase& one : cases::simulate(settings.scenarios, settings.options))
    runs.push_back(replay_one(settings, one, group, trace));
  if (group.rank() != 0) return;
  const Workload& workload = settings.scenarios.front().workload;
  std::cout
      << fmt::format(
             "replaying {} with K-FAC: forward {}, backward {}, {} of parameters on each of {} ranks\n{}",
             workload.name, format_seconds(workload.forward_seconds()),
             format_seconds(workload.backward_seconds()), format_bytes(workload.bytes()), group.size(), said)
      << "Computation is timed, not done; communication is real"
      << (group.modelled_network().empty() ? "" : " and takes the time of the modelled network") << ".\n\n"
      << replayed_table(runs) << std::flush;
  write_checked([&] {
    if (!settings.json.empty()) write_results(settings.json, to_json(runs, group), of_replay(group));
    if (trace) write_chrome_trace(*trace, settings.trace);
  });
}

}  // namespace dear::cli
