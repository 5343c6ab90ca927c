#include "studies/fusionllm/report.h"
#include <algorithm>
#include <map>
#include <tuple>

#include <nlohmann/json.hpp>

namespace dear::studies::fusionllm {
namespace {

using Json = nlohmann::ordered_json;

double mean_over(const std::vector<const Iteration*>& seeds, double Iteration::* member) {
  double sum = 0;
  for (const Iteration* const one : seeds) sum += one->*member / static_cast<double>(seeds.size());
  return sum;
}

// A row is a plan, of all its seeds.
Json json_of(const Iterations& iterations) {
  std::vector<std::vector<const Iteration*>> rows;
  std::map<std::tuple<std::string, std::string, PlanMethod, CompressionRule, ScheduleKind>, std::size_t>
      places;
  for (const Iteration& one : iterations.all) {
    const auto [found, is_new] =
        places.emplace(std::tuple(one.setting, one.model, one.method, one.rule, one.schedule), rows.size());
    if (is_new) rows.emplace_back();
    rows[found->second].push_back(&one);
  }
  Json all{{"iterations", Json::array()}, {"left_out", Json::array()}};
  for (const std::vector<const Iteration*>& seeds : rows) {
    std::vector<double> seconds;
    double peak = 0;
    for (const Iteration* const one : seeds) {
      seconds.push_back(one->seconds);
      peak = std::max(peak, one->peak_bytes);
    }
    const Iteration& first = *seeds.front();
    all["iterations"].push_back({{"setting", first.setting},
                                 {"model", first.model},
                                 {"planner", name_of(first.method)},
                                 {"compression", name_of(first.rule)},
                                 {"schedule", name_of(first.schedule)},
                                 {"seeds", seeds.size()},
                                 {"iteration_seconds", geometric_mean(seconds)},
                                 {"least_seconds", *std::min_element(seconds.begin(), seconds.end())},
                                 {"most_seconds", *std::max_element(seconds.begin(), seconds.end())},
                                 {"bubble", mean_over(seeds, &Iteration::bubble)},
                                 {"sent_elements", mean_over(seeds, &Iteration::elements)},
                                 {"sent_bytes", mean_over(seeds, &Iteration::bytes)},
                                 {"most_peak_bytes", peak}});
  }
  for (const LeftOut& one : iterations.left_out)
    all["left_out"].push_back({{"plan", one.what}, {"reason", one.reason}});
  return all;
}

}  // namespace

std::string to_json(const PublishedFusionLlm& published, const FusionLlmFindings& findings) {
  Json all{{"statements", Json::array()},
           {"assumptions", json_of(findings.assumed)},
           {"topologies", json_of(findings.by_topology)},
           {"bandwidths", json_of(findings.by_bandwidth)},
           {"schedules", json_of(findings.by_schedule)},
           {"fastest_devices", json_of(findings.fastest)},
           {"learning", Json::array()}};
  for (const studies::Statement& one : statements_of(published, findings))
    all["statements"].push_back({{"says", one.says},
                                 {"seen", one.seen},
                                 {"held", one.held},
                                 {"cases", one.cases},
                                 {"undecided", one.undecided},
                                 {"not_comparable", one.not_comparable},
                                 {"verdict", one.verdict()}});
  for (const LearntWith& one : findings.learnt) {
    Json learnt{
        {"compression", name_of(one.rule)},       {"ratio", one.ratio},
        {"learning_rate", one.learning_rate},     {"slowest_link_seconds", mean_of(one.slowest_seconds)},
        {"sent_elements", mean_of(one.elements)}, {"seeds", Json::array()}};
    for (const Learnt& seed : one.by_seed)
      learnt["seeds"].push_back({{"test_loss", seed.test_loss},
                                 {"test_accuracy", seed.test_accuracy},
                                 {"test_loss_without_compression", seed.whole_loss}});
    all["learning"].push_back(std::move(learnt));
  }
  return all.dump(2) + "\n";
}

}  // namespace dear::studies::fusionllm
