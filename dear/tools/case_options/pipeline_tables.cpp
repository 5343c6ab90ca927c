#include "dear/tools/case_options/pipeline_tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/cluster/sites.h"
#include "dear/predict/sim/simulate.h"
#include "dear/tools/options/table.h"

namespace dear::cli {
namespace {

std::string bytes_text(double bytes) { return format_bytes(static_cast<std::int64_t>(bytes)); }

// Least and most.
struct Spread {
  double least = 0, most = 0;
  void add(double value) {
    least = least == 0 ? value : std::min(least, value);
    most = std::max(most, value);
  }
};

template <typename Format>
std::string text_of(const Spread& spread, const Format& format) {
  if (spread.most == 0) return "-";
  const std::string least = format(spread.least), most = format(spread.most);
  return least == most ? least : fmt::format("{} to {}", least, most);
}

std::string bandwidth_text(double bytes_per_second) {  // Three digits are enough of what is drawn.
  const double bits = 8 * bytes_per_second, step = std::pow(10, std::floor(std::log10(bits)) - 2);
  return sim::format_bandwidth(std::round(bits / step) * step);
}

std::string speed_text(double flops) { return fmt::format("{:.3g} TFLOP/s", flops / 1e12); }

std::string memory_text(double bytes) { return bytes_text(bytes); }

}  // namespace

std::string stages_table(const cases::PipelineCase& one) {
  Table table({"stage", "device", "site", "from operator", "operators", "parameters", "compute", "busy",
               "peak memory", "of"},
              {.left_columns = 4});
  const cases::PipelineJob& job = *one.job;
  for (std::size_t s = 0; s < one.plan.stages.size(); ++s) {
    const auto& [device, operators] = one.plan.stages[s];
    const std::size_t place = index_of(one.times.shape.place_of(static_cast<int>(s)));
    table.add({std::to_string(s), printable(job.device(device)), printable(job.sites[index_of(device)]),
               printable(job.dag[static_cast<methods::pipeline::OperatorId>(operators.begin)].name),
               std::to_string(operators.size()), bytes_text(static_cast<double>(parameter_bytes_of(one, s))),
               format_seconds(one.times.stages[s].all()),
               fmt::format("{:.1f} %", 100 * one.played.places[place].busy_seconds / one.seconds()),
               bytes_text(one.peak_bytes[place]),
               format_bytes(job.cluster.devices[index_of(device)].memory_bytes)});
  }
  return table.to_string();
}

std::string links_table(const cases::PipelineCase& one) {
  Table table({"link", "bandwidth", "activations", "ratio", "time", "latency", "gradients", "ratio", "time"},
              {.left_columns = 1});
  for (std::size_t cut = 0; cut + 1 < one.plan.stages.size(); ++cut) {
    const int from = one.plan.stages[cut].device, to = one.plan.stages[cut + 1].device;
    if (from == to) continue;
    const cases::Carried there = activations_over(one, cut), back = gradients_over(one, cut);
    table.add({fmt::format("{} - {}", printable(one.job->device(from)), printable(one.job->device(to))),
               bandwidth_text(one.job->cluster.bytes_per_second[index_of(from)][index_of(to)]),
               format_bytes(there.bytes), fmt::format("{:.4g}", there.ratio),
               format_seconds(there.transfer.busy_seconds), format_seconds(there.transfer.latency_seconds),
               format_bytes(back.bytes), fmt::format("{:.4g}", back.ratio),
               format_seconds(back.transfer.busy_seconds)});
  }
  for (const methods::pipeline::Exchange& exchange : one.times.exchanges) {
    const int from = one.plan.stages[index_of(exchange.stages[0])].device,
              to = one.plan.stages[index_of(exchange.stages[1])].device;
    table.add({fmt::format("{} - {}, tied gradients, once", printable(one.job->device(from)),
                           printable(one.job->device(to))),
               bandwidth_text(one.job->cluster.bytes_per_second[index_of(from)][index_of(to)]), "", "",
               format_seconds(exchange.there.busy_seconds), format_seconds(exchange.there.latency_seconds),
               "", "", format_seconds(exchange.back.busy_seconds)});
  }
  return table.to_string();
}

std::string plans_table(const std::vector<cases::PipelineCase>& cases, const std::string& last,
                        const std::vector<double>& speed_ups) {
  const bool several_jobs = std::any_of(cases.begin(), cases.end(), [&](const cases::PipelineCase& one) {
    return one.job != cases.front().job;
  });
  std::vector<std::string> header;
  if (several_jobs) header = {"model", "cluster", "micro-batches"};
  header.insert(header.end(), {"planner", "schedule", "compression", "devices", "iteration", "bubble", "sent",
                               "peak memory", last});
  Table table(std::move(header), {.left_columns = several_jobs ? 6U : 3U});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const cases::PipelineCase& one = cases[i];
    std::vector<std::string> row;
    if (several_jobs)
      row = {printable(one.job->dag.name()), printable(one.job->cluster.name),
             std::to_string(one.plan.micro_batches)};
    row.insert(row.end(), {printable(one.planner), std::string(name_of(one.plan.schedule)), one.compression,
                           std::to_string(one.times.shape.places), format_seconds(one.seconds()),
                           fmt::format("{:.1f} %", 100 * one.bubble()), bytes_text(one.sent_bytes()),
                           bytes_text(*std::max_element(one.peak_bytes.begin(), one.peak_bytes.end())),
                           fmt::format("{:.2f}", speed_ups[i])});
    table.add(std::move(row));
  }
  return table.to_string();
}

std::string clusters_table() {
  Table table({"cluster", "devices", "summary"}, {.left_columns = 3});
  for (const PairClusterPreset& preset : pair_clusters())
    table.add(
        {preset.cluster.name, std::to_string(preset.cluster.devices.size()), std::string(preset.summary)});
  return table.to_string();
}

std::string sites_table(const PairCluster& cluster) {
  const std::vector<std::string> sites = cases::site_names(cluster);
  struct Site {
    int devices = 0;
    Spread speed, memory, inside, out, latency;
  };
  std::map<std::string, Site> found;
  for (std::size_t from = 0; from < sites.size(); ++from) {
    Site& site = found[sites[from]];
    ++site.devices;
    site.speed.add(cluster.devices[from].flops_per_second);
    site.memory.add(static_cast<double>(cluster.devices[from].memory_bytes));
    for (std::size_t to = 0; to < sites.size(); ++to) {
      if (from == to) continue;
      (sites[from] == sites[to] ? site.inside : site.out).add(cluster.bytes_per_second[from][to]);
      if (sites[from] != sites[to]) site.latency.add(cluster.latency_seconds[from][to]);
    }
  }
  Table table({"site", "devices", "each", "memory", "links inside", "links to others", "latency to others"},
              {.left_columns = 1});
  for (const auto& [name, site] : found)
    table.add({printable(name), std::to_string(site.devices), text_of(site.speed, speed_text),
               text_of(site.memory, memory_text), text_of(site.inside, bandwidth_text),
               text_of(site.out, bandwidth_text), text_of(site.latency, format_seconds)});
  return table.to_string();
}

void print_left_out(const std::vector<cases::LeftOutPlan>& left_out) {
  std::vector<std::string> reasons;
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const cases::LeftOutPlan& one : left_out) {
    std::vector<std::string>& plans = by_reason[one.reason];
    if (plans.empty()) reasons.push_back(one.reason);
    plans.push_back(one.what);
  }
  for (const std::string& reason : reasons) {
    const std::vector<std::string>& plans = by_reason[reason];
    const std::string others = plans.size() == 1 ? "" : fmt::format(" and {} more", plans.size() - 1);
    fmt::print("Left out: {}{}, because {}.\n", plans.front(), others, reason);
  }
}

}  // namespace dear::cli
