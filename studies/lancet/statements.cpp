#include "studies/lancet/report.h"
#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "dear/platform/cluster/presets.h"

namespace dear::studies::lancet {

using studies::Cases;
using studies::Judged;
using studies::percent;
using studies::Statement;
namespace {

using Some = std::vector<const Iteration*>;
using Wanted = std::function<bool(const Iteration&)>;

// The iterations that are wanted, by assumption, in the order of assumptions().
std::vector<std::pair<std::string, Some>> by_assumption(const LancetFindings& findings,
                                                        const Wanted& wanted) {
  std::vector<std::pair<std::string, Some>> all;
  for (const Assumption& assumption : assumptions()) {
    Some some;
    for (const Iteration& one : findings.iterations)
      if (one.assumption == assumption.name && wanted(one)) some.push_back(&one);
    if (!some.empty()) all.emplace_back(assumption.name, std::move(some));
  }
  return all;
}

// What holds under all assumptions holds, under none fails.
Judged over(const std::vector<bool>& held) {
  if (std::all_of(held.begin(), held.end(), [](bool one) { return one; })) return Judged::holds;
  return std::any_of(held.begin(), held.end(), [](bool one) { return one; }) ? Judged::undecided
                                                                             : Judged::fails;
}

// A figure under each assumption, beside the published one. Where it is too low under one and too high under
// another, what was seen agrees with both.
Judged beside(const std::vector<double>& figures, double published, double close) {
  std::vector<bool> held;
  for (const double figure : figures) held.push_back(std::abs(figure - published) <= close);
  const auto [least, most] = std::minmax_element(figures.begin(), figures.end());
  const Judged judged = over(held);
  return judged == Judged::fails && *least < published && *most > published ? Judged::undecided : judged;
}

using Format = std::string (*)(double);
std::string times(double gain) { return fmt::format("{:.2f}", gain); }
std::string whole(double number) { return fmt::format("{:.0f}", number); }

// "1.24 as tabled, 1.10 to 1.31 under all assumptions"
std::string seen_of(const std::vector<double>& figures, Format format) {
  const auto [least, most] = std::minmax_element(figures.begin(), figures.end());
  return fmt::format("{} as tabled, {} to {} under all assumptions", format(figures.front()), format(*least),
                     format(*most));
}

// First as tabled, on all ranks, as the published figure; then under each assumption, the first too, on the
// ranks of the ablation.
std::vector<double> figures_of(const PublishedLancet& published, const LancetFindings& findings,
                               const Wanted& wanted, const std::function<double(const Some&)>& of) {
  std::vector<double> figures;
  for (const auto& [assumption, some] : by_assumption(findings, wanted)) {
    if (figures.empty()) figures.push_back(of(some));
    Some sampled;
    for (const Iteration* const one : some)
      if (one->ranks == published.ablation_ranks) sampled.push_back(one);
    if (!sampled.empty()) figures.push_back(of(sampled));
  }
  return figures;
}

double largest_gain(const Some& some) {
  double largest = 0;
  for (const Iteration* const one : some) largest = std::max(largest, one->gain());
  return largest;
}

double mean_gain(const Some& some) {
  double mean = 0;
  for (const Iteration* const one : some) mean += one->gain() / static_cast<double>(some.size());
  return mean;
}

Statement of_gain(const PublishedLancet& published, const PublishedLancet::OfCluster& cluster,
                  const PublishedLancet::Gain& gain, const LancetFindings& findings) {
  const Wanted wanted = [&](const Iteration& one) {
    return one.cluster == cluster.cluster && name_of(one.gate) == gain.gate;
  };
  const std::vector<double> largest = figures_of(published, findings, wanted, largest_gain);
  const std::vector<double> mean = figures_of(published, findings, wanted, mean_gain);
  Cases cases(
      fmt::format("Both passes with the gate {} on {} are up to {:.2f} times as fast as the best "
                  "baseline, and {:.2f} times on average (published)",
                  gain.gate, cluster.cluster, gain.largest, gain.mean));
  if (!largest.empty()) {
    cases.add(beside(largest, gain.largest, kCloseGain), "at most " + seen_of(largest, times));
    cases.add(beside(mean, gain.mean, kCloseGain), "on average " + seen_of(mean, times));
  }
  return cases.finish();
}

Statement of_exposed(const PublishedLancet& published, const PublishedLancet::OfCluster& cluster,
                     const PublishedLancet::ExposedLess& less, const LancetFindings& findings) {
  const Wanted wanted = [&](const Iteration& one) {
    return one.cluster == cluster.cluster && one.gate == Gate::in_order && one.has(less.than);
  };
  const std::vector<double> most = figures_of(published, findings, wanted, [&](const Some& some) {
    double less_exposed = some.front()->exposed_less(less.than);
    for (const Iteration* const one : some)
      less_exposed = std::max(less_exposed, one->exposed_less(less.than));
    return less_exposed;
  });
  Cases cases(fmt::format("Up to {} less communication is exposed on {} than by {} (published)",
                          percent(less.largest), cluster.cluster, less.than));
  if (!most.empty()) cases.add(beside(most, less.largest, kCloseExposed), seen_of(most, percent));
  return cases.finish();
}

Statement of_gates(const LancetFindings& findings) {
  Cases cases("A gate that is not cut gains no more than one that is");
  for (const Iteration& one : findings.iterations) {
    if (one.gate != Gate::by_importance) continue;
    for (const Iteration& other : findings.iterations)
      if (other.gate == Gate::in_order && other.model == one.model && other.cluster == one.cluster &&
          other.ranks == one.ranks && other.assumption == one.assumption)
        cases.add(one.gain() <= other.gain() + kNoLess);
  }
  const auto groups =
      by_assumption(findings, [](const Iteration& one) { return one.gate == Gate::by_importance; });
  return cases.finish(
      groups.empty() ? ""
                     : fmt::format("batch-prioritized at most {:.2f}, on average {:.2f} times "
                                   "as fast as the best baseline, as tabled",
                                   largest_gain(groups.front().second), mean_gain(groups.front().second)));
}

// Of iterations with the gate that is cut, on the ranks of the published ablation.
Wanted ablated(const PublishedLancet& published, const std::string& cluster, const std::string& model) {
  return [ranks = published.ablation_ranks, cluster, model](const Iteration& one) {
    return one.has("partition") && one.ranks == ranks && one.cluster == cluster && one.model == model;
  };
}

// How many times as long an iteration takes without the other pass.
double with_alone(const Iteration& one, const char* pass) {
  return one.by(pass).seconds / one.by("lancet").seconds;
}

std::vector<Statement> of_ablation(const PublishedLancet& published, const LancetFindings& findings) {
  Cases each("Each pass alone is faster than none, and both are faster still (published)");
  Cases large("gpt2-l-moe loses more than gpt2-s-moe where weight gradients are not moved (published)");
  Cases small("gpt2-s-moe loses about as much without the one pass as without the other (published)");
  for (const PublishedLancet::OfCluster& cluster : published.clusters) {
    const auto of_small = by_assumption(findings, ablated(published, cluster.cluster, "gpt2-s-moe"));
    const auto of_large = by_assumption(findings, ablated(published, cluster.cluster, "gpt2-l-moe"));
    for (const auto& [model, group] : {std::pair{"gpt2-s-moe", of_small}, {"gpt2-l-moe", of_large}}) {
      if (group.empty()) continue;
      std::vector<bool> held;
      for (const auto& [assumption, some] : group) {
        const Iteration& one = *some.front();
        const double none = one.by("unoptimised").seconds / one.by("lancet").seconds;
        const double dw = with_alone(one, "dw"), partition = with_alone(one, "partition");
        held.push_back(std::max(dw, partition) < none && std::min(dw, partition) > 1);
      }
      const Iteration& first = *group.front().second.front();
      each.add(
          over(held),
          fmt::format("{} on {}: none {:.2f}, weight gradients {:.2f}, partition {:.2f} times "
                      "as long as both",
                      model, cluster.cluster, first.by("unoptimised").seconds / first.by("lancet").seconds,
                      with_alone(first, "dw"), with_alone(first, "partition")));
    }
    std::vector<bool> more, alike;
    std::vector<double> large_loses, small_loses, small_differs;
    for (std::size_t i = 0; i < std::min(of_small.size(), of_large.size()); ++i) {
      const Iteration& s = *of_small[i].second.front();
      const Iteration& l = *of_large[i].second.front();
      large_loses.push_back(with_alone(l, "partition"));
      small_loses.push_back(with_alone(s, "partition"));
      more.push_back(large_loses.back() > small_loses.back() + kNoLess);
      small_differs.push_back(with_alone(s, "partition") - with_alone(s, "dw"));
      alike.push_back(std::abs(small_differs.back()) <= kAlike);
    }
    if (more.empty()) continue;
    large.add(over(more), fmt::format("{}: {} and {} times as long", cluster.cluster, times(large_loses[0]),
                                      times(small_loses[0])));
    small.add(over(alike),
              fmt::format("{}: without weight gradients longer than without partition by {}, of an iteration",
                          cluster.cluster, seen_of(small_differs, percent)));
  }
  return {each.finish(), large.finish(), small.finish()};
}

Statement of_parts(const PublishedLancet& published, const LancetFindings& findings) {
  Cases cases(
      fmt::format("No range is cut into more than {} parts, of up to 8 (published)", published.most_parts));
  for (const PublishedLancet::OfCluster& cluster : published.clusters) {
    std::vector<bool> held;
    std::vector<double> most;
    for (const auto& [assumption, some] :
         by_assumption(findings, [&](const Iteration& one) { return one.cluster == cluster.cluster; })) {
      int parts = 0;
      for (const Iteration* const one : some) parts = std::max(parts, one->by("lancet").parts);
      most.push_back(parts);
      held.push_back(parts <= published.most_parts);
    }
    if (!held.empty())
      cases.add(over(held), fmt::format("{} at most {}", cluster.cluster, seen_of(most, whole)));
  }
  return cases.finish();
}

Statement of_best_fit(const LancetFindings& findings) {
  const BestFitOutcome& outcome = findings.best_fit;
  Cases cases(fmt::format("Best fit hides at least {} of what the best choice hides, on random networks",
                          percent(kNearOptimum)));
  if (outcome.graphs > 0)
    cases.add(outcome.least >= kNearOptimum,
              fmt::format("{} at least, {} on average; the best choice itself on {} of {} networks",
                          percent(outcome.least), percent(outcome.mean), outcome.optimal, outcome.graphs));
  return cases.finish();
}

}  // namespace

std::vector<std::string> without_verdict(const PublishedLancet& published, const LancetFindings& findings) {
  std::vector<std::string> all;
  for (const PublishedLancet::OfCluster& cluster : published.clusters) {
    const Iteration* best = nullptr;
    for (const Iteration& one : findings.by_pace)
      if (one.cluster == cluster.cluster && (!best || one.gain() > best->gain())) best = &one;
    if (best)
      all.push_back(fmt::format(
          "On {} the most that is gained at any pace of kernels that was tried is {:.2f} times, by {}, where "
          "an all-to-all takes {:.2f} times as long as the experts. The largest published gain is {:.2f} "
          "times, over rivals whose own software is not modelled here.",
          cluster.cluster, best->gain(), best->model, best->all_to_all_seconds / best->expert_seconds,
          cluster.gains.empty() ? 0 : cluster.gains.front().largest));
    const int node = find_cluster(cluster.cluster).dimensions.front().size;
    const auto of = [&](bool inside) {
      return by_assumption(findings, [&, inside](const Iteration& one) {
        return one.cluster == cluster.cluster && one.gate == Gate::in_order && (one.ranks <= node) == inside;
      });
    };
    const auto within = of(true), beyond = of(false);
    if (!within.empty() && !beyond.empty()) {
      double ratio = 0;
      for (const Iteration* const one : within.front().second)
        ratio = std::max(ratio, one->all_to_all_seconds / one->expert_seconds);
      all.push_back(fmt::format(
          "Within a node of {} an all-to-all takes {:.2f} times as long as the experts at most, and the gate "
          "{} "
          "gains {:.2f} times on average. On more nodes than one it gains {:.2f} times, all as tabled.",
          cluster.cluster, ratio, name_of(Gate::in_order), mean_gain(within.front().second),
          mean_gain(beyond.front().second)));
    }
    for (const PublishedLancet::Gain& gain : cluster.gains)
      if (find_gate(gain.gate) == Gate::by_importance && gain.largest > cluster.gains.front().largest)
        all.push_back(fmt::format(
            "On {} the published gain is larger with the gate {}, which is not cut ({:.2f}), than with {} "
            "({:.2f}). Here it never gains more.",
            cluster.cluster, gain.gate, gain.largest, cluster.gains.front().gate,
            cluster.gains.front().largest));
  }
  return all;
}

std::vector<Statement> statements_of(const PublishedLancet& published, const LancetFindings& findings) {
  std::vector<Statement> all;
  for (const PublishedLancet::OfCluster& cluster : published.clusters)
    for (const PublishedLancet::Gain& gain : cluster.gains)
      all.push_back(of_gain(published, cluster, gain, findings));
  all.push_back(of_gates(findings));
  for (const PublishedLancet::OfCluster& cluster : published.clusters)
    for (const PublishedLancet::ExposedLess& less : cluster.exposed_less)
      all.push_back(of_exposed(published, cluster, less, findings));
  for (Statement& statement : of_ablation(published, findings)) all.push_back(std::move(statement));
  all.push_back(of_parts(published, findings));
  all.push_back(of_best_fit(findings));
  return all;
}

}  // namespace dear::studies::lancet
