#include "dear/tools/case_options/simulated_cases.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/units.h"
#include "dear/tools/options/table.h"

namespace dear::cli {
namespace {

std::string quotient(double a, double b, int digits) {
  return b > 0 ? fmt::format("{:.{}f}", a / b, digits) : "-";
}

std::string text_of(const sim::Estimate& estimate) {
  const std::string seconds = format_seconds(estimate.seconds);
  return estimate.half_width_seconds > 0
             ? fmt::format("{} +- {}", seconds, format_seconds(estimate.half_width_seconds))
             : seconds;
}

}  // namespace

void print_jobs(const std::vector<std::string>& lines) {
  std::set<std::string> said;
  for (const std::string& line : lines)
    if (said.insert(line).second) fmt::print("{}\n", line);
  fmt::print("Everything below is modelled: no computation and no communication took place.\n");
}

void print_scenarios(const std::vector<cases::Scenario>& scenarios) {
  std::vector<std::string> lines;
  for (const cases::Scenario& scenario : scenarios) {
    const Workload& workload = scenario.workload;
    lines.push_back(fmt::format("{}: {}, {} of parameters, forward {}, backward {} ({})", workload.name,
                                counted(workload.layers.size(), "layer"), format_bytes(workload.bytes()),
                                format_seconds(workload.forward_seconds()),
                                format_seconds(workload.backward_seconds()), scenario.origin));
  }
  print_jobs(lines);
}

void print_codecs(const std::vector<cases::Case>& cases) {
  std::set<std::string> said;
  for (const cases::Case& one : cases)
    if (!one.codec.empty() && said.insert(one.codec).second) fmt::print("{}\n", one.codec);
}

std::string table_of(const std::vector<cases::Case>& cases, std::size_t lines) {
  const bool compresses = std::any_of(
      cases.begin(), cases.end(), [](const cases::Case& one) { return one.options.compression.has_value(); });
  std::vector<std::string> header{"model", "cluster", "policy"};
  if (compresses) header.emplace_back("compression");
  header.insert(header.end(), {"ranks", "buckets", "iteration", "compute"});
  if (compresses) header.emplace_back("codec");
  header.insert(header.end(), {"exposed comm.", "bound", "ratio to bound", "memory", "speed-up"});
  Table table(std::move(header), {.left_columns = compresses ? 4U : 3U});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const cases::Case& one = cases[i];
    const sim::Evaluation& evaluation = one.evaluation;
    const double first = cases[i - i % lines].evaluation.iteration.seconds;
    std::vector<std::string> row{one.scenario->workload.name, one.scenario->cluster.name,
                                 std::string(one.policy->name)};
    if (compresses) row.push_back(one.options.compression ? one.compression() : "-");
    row.insert(row.end(), {std::to_string(one.times.ranks), std::to_string(one.grouping.size()),
                           text_of(evaluation.iteration), format_seconds(evaluation.compute_seconds)});
    if (compresses) row.push_back(one.options.compression ? format_seconds(evaluation.codec_seconds) : "-");
    row.insert(
        row.end(),
        {format_seconds(evaluation.exposed_communication_seconds), format_seconds(evaluation.bound_seconds),
         quotient(evaluation.iteration.seconds, evaluation.bound_seconds, 3),
         format_bytes(evaluation.memory.total()), quotient(first, evaluation.iteration.seconds, 2)});
    table.add(std::move(row));
  }
  return table.to_string();
}

std::string table_of(const std::vector<cases::RoundsCase>& rounds) {
  Table table({"model", "cluster", "beside", "steps a round", "mean step", "exposed", "speed-up",
               "overlapped", "exposed", "speed-up", "sent a step"},
              {.left_columns = 3});
  for (const cases::RoundsCase& one : rounds) {
    std::vector<std::string> row{one.beside->scenario->workload.name, one.beside->scenario->cluster.name,
                                 std::string(one.beside->policy->name), std::to_string(one.steps)};
    for (const methods::rounds::RoundTimes* const times : {&one.waits, &one.overlaps})
      row.insert(row.end(), {format_seconds(times->seconds), format_seconds(times->exposed_seconds),
                             fmt::format("{:.2f}", one.speed_up(*times))});
    row.push_back(format_bytes(static_cast<std::int64_t>(one.waits.sent_bytes)));
    table.add(std::move(row));
  }
  std::string text = table.to_string() + "\n";
  for (const std::string& sentence : cases::when_rounds_pay(rounds)) text += sentence + "\n";
  return text + "Samples are as many as without rounds; what rounds change in the loss is not modelled.\n";
}

}  // namespace dear::cli
