#include "studies/fusionllm/report.h"
#include "studies/training/paired.h"
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace dear::studies::fusionllm {

using studies::Cases;
using studies::Judged;
using studies::percent;
using studies::Statement;
namespace {

// A statement holds that holds under all assumptions, and fails that holds under none.
Judged over(const std::vector<bool>& held) {
  const auto count = std::count(held.begin(), held.end(), true);
  if (count == std::ssize(held)) return Judged::holds;
  return count == 0 ? Judged::fails : Judged::not_comparable;
}

// Lists settings or seeds of the iterations of a model, in their order.
template <class Key>
std::vector<Key> each(const Iterations& iterations, const std::string& model, Key Iteration::* member) {
  std::vector<Key> keys;
  for (const Iteration& one : iterations.all)
    if (one.model == model && std::find(keys.begin(), keys.end(), one.*member) == keys.end())
      keys.push_back(one.*member);
  return keys;
}
std::vector<std::string> settings_of(const Iterations& iterations, const std::string& model) {
  return each(iterations, model, &Iteration::setting);
}

// Writes "26.1 as drawn, 1.73 to 52.5 under all assumptions".
std::string seen_of(const std::vector<double>& figures) {
  const auto [least, most] = std::minmax_element(figures.begin(), figures.end());
  return fmt::format("{} as drawn, {} to {} under all assumptions", figure_text(figures.front()),
                     figure_text(*least), figure_text(*most));
}

// Returns a figure of all seeds for each assumption; those that cannot be made are left out.
std::vector<double> by_assumption(const FusionLlmFindings& findings, const std::string& model,
                                  const std::function<std::vector<double>(const std::string&)>& of_seeds,
                                  const std::function<double(const std::vector<double>&)>& figure) {
  std::vector<double> figures;
  for (const std::string& setting : settings_of(findings.assumed, model)) {
    const std::vector<double> values = of_seeds(setting);
    if (!values.empty()) figures.push_back(figure(values));
  }
  return figures;
}

double least_of(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }
double most_of(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

// Returns a figure for each assumption and each rival with this compression.
std::vector<double> over_rivals(const FusionLlmFindings& findings, const std::string& model,
                                CompressionRule rule,
                                const std::function<double(const std::vector<double>&)>& figure) {
  std::vector<double> figures;
  for (const std::string& setting : settings_of(findings.assumed, model))
    for (const Rival& rival : rivals()) {
      if (rival.rule != rule) continue;
      const std::vector<double> values = speed_ups(findings.assumed, setting, model, rival);
      if (!values.empty()) figures.push_back(figure(values));
    }
  return figures;
}

std::vector<Statement> of_published(const PublishedFusionLlm& published, const FusionLlmFindings& findings) {
  Cases least(fmt::format(
      "OP-Fence with AdaTopK is at least {:.2f} times as fast as equal cuts, on every draw (published)",
      published.least_speed_up));
  Cases most(fmt::format(
      "OP-Fence with AdaTopK is up to {:.2f} times as fast as equal cuts, on the best draw (published)",
      published.most_speed_up));
  for (const std::string& model : published.models) {
    std::vector<double> slowest, fastest;  // of all seeds
    std::string seen_least, seen_most;
    for (const CompressionRule rule : {CompressionRule::none, CompressionRule::top_k}) {
      const auto look_at = [&](std::vector<double>& all, std::string& seen, const auto& figure) {
        const std::vector<double> some = over_rivals(findings, model, rule, figure);
        if (some.empty()) return;
        seen += fmt::format(
            "{}{} to {} beside {}", seen.empty() ? "" : ", ", figure_text(least_of(some)),
            figure_text(most_of(some)),
            rule == CompressionRule::none ? "cuts without compression" : "cuts with uniform top-k");
        all.insert(all.end(), some.begin(), some.end());
      };
      look_at(slowest, seen_least, least_of);
      look_at(fastest, seen_most, most_of);
    }
    if (slowest.empty()) continue;
    std::vector<bool> held;
    for (const double figure : slowest) held.push_back(figure >= published.least_speed_up);
    least.add(over(held), fmt::format("`{}`: {}", model, seen_least));
    std::vector<bool> near;
    for (const double figure : fastest)
      near.push_back(std::abs(figure - published.most_speed_up) <= kCloseSpeedUp * published.most_speed_up);
    Judged judged = over(near);
    // A figure that is passed over on the way from one assumption to another is decided by them.
    if (judged == Judged::fails && least_of(fastest) < published.most_speed_up &&
        most_of(fastest) > published.most_speed_up)
      judged = Judged::not_comparable;
    most.add(judged, fmt::format("`{}`: {}", model, seen_most));
  }
  return {least.finish(), most.finish()};
}

// Two plans of one seed are compared by a figure, under each assumption.
struct Compared {
  std::string says;
  PlanMethod method, other_method;
  CompressionRule rule, other_rule;
  std::function<double(const Iteration&, const Iteration&)> of;
  double at_least = 1;
};

Statement compare(const PublishedFusionLlm& published, const FusionLlmFindings& findings,
                  const Compared& what) {
  Cases cases(what.says);
  for (const std::string& model : published.models) {
    const auto of_seeds = [&](const std::string& setting) {
      std::vector<double> values;
      for (const std::uint64_t seed : each(findings.assumed, model, &Iteration::seed)) {
        const Iteration* const one = findings.assumed.find(setting, model, seed, what.method, what.rule);
        const Iteration* const other =
            findings.assumed.find(setting, model, seed, what.other_method, what.other_rule);
        if (one != nullptr && other != nullptr) values.push_back(what.of(*one, *other));
      }
      return values;
    };
    const std::vector<double> figures = by_assumption(findings, model, of_seeds, geometric_mean);
    if (figures.empty()) continue;
    std::vector<bool> held;
    for (const double figure : figures) held.push_back(figure >= what.at_least);
    cases.add(over(held), fmt::format("`{}`: {}", model, seen_of(figures)));
  }
  return cases.finish();
}

double speed(const Iteration& one, const Iteration& other) { return other.seconds / one.seconds; }

std::vector<Statement> of_parts(const PublishedFusionLlm& published, const FusionLlmFindings& findings) {
  constexpr auto kFence = PlanMethod::op_fence, kNumber = PlanMethod::equal_number;
  constexpr auto kDense = CompressionRule::none, kAda = CompressionRule::ada_top_k;
  const auto elements = [](const Iteration& one, const Iteration& other) {
    return one.elements / other.elements;
  };
  std::vector<Statement> all;
  for (const Compared& one :
       {Compared{"Without compression, OP-Fence is faster than equal numbers", kFence, kNumber, kDense,
                 kDense, speed},
        Compared{"Without compression, OP-Fence is faster than equal work", kFence, PlanMethod::equal_work,
                 kDense, kDense, speed},
        Compared{"OP-Fence is faster than the best cuts for devices as they are listed, both with AdaTopK",
                 kFence, PlanMethod::plain_dp, kAda, kAda, speed},
        Compared{"AdaTopK makes equal numbers faster", kNumber, kNumber, kAda, kDense, speed},
        Compared{"AdaTopK makes OP-Fence faster", kFence, kFence, kAda, kDense, speed},
        Compared{fmt::format("OP-Fence with AdaTopK is at least {:.1f} times as fast as with uniform top-k",
                             kNearlyAsFast),
                 kFence, kFence, kAda, CompressionRule::top_k, speed, kNearlyAsFast},
        Compared{
            fmt::format("AdaTopK sends at least {:g} times as many elements as uniform top-k", kMoreElements),
            kFence, kFence, kAda, CompressionRule::top_k, elements, kMoreElements}})
    all.push_back(compare(published, findings, one));
  return all;
}

// Judges the gain over equal numbers without compression where links between sites have a part of the
// bandwidth.
Statement of_heterogeneity(const PublishedFusionLlm& published, const FusionLlmFindings& findings,
                           const std::string& says, double gain, const std::function<bool(double)>& wanted) {
  Cases cases(says);
  const Rival dense{PlanMethod::equal_number, CompressionRule::none};
  for (const std::string& model : published.models) {
    double least = HUGE_VAL;
    std::set<std::string> settings;
    for (const Iteration& one : findings.by_bandwidth.all)
      if (wanted(kFastestLink / one.between_bits_per_second)) settings.insert(one.setting);
    for (const std::string& setting : settings) {
      const std::vector<double> values = speed_ups(findings.by_bandwidth, setting, model, dense);
      if (!values.empty()) least = std::min(least, least_of(values));
    }
    if (std::isfinite(least))
      cases.add(least >= gain, fmt::format("`{}`: {} times at least, over seeds", model, figure_text(least)));
  }
  return cases.finish();
}

Statement of_the_closed_form(const FusionLlmFindings& findings) {
  Cases cases(
      fmt::format("FusionLLM's closed form of an iteration is within {} of what is played, for OP-Fence",
                  percent(kCloseForm)));
  const Iteration *least = nullptr, *most = nullptr;
  const auto part = [](const Iteration& one) { return one.estimated_seconds / one.seconds; };
  for (const Iteration& one : findings.assumed.all) {
    if (one.method != PlanMethod::op_fence) continue;
    if (least == nullptr || part(one) < part(*least)) least = &one;
    if (most == nullptr || part(one) > part(*most)) most = &one;
  }
  const auto told = [&](const Iteration& one) {
    return fmt::format("{:.2f} of it ({}, `{}`, {})", part(one), one.setting, one.model, name_of(one.rule));
  };
  if (least != nullptr)
    cases.add(part(*least) >= 1 - kCloseForm && part(*most) <= 1 + kCloseForm,
              fmt::format("from {} to {}", told(*least), told(*most)));
  return cases.finish();
}

// Judges the loss that AdaTopK costs, less half of what uniform top-k costs, by seed.
Judged costs_half(const LearntWith& dense, const LearntWith& uniform, const LearntWith& ada) {
  std::vector<double> bound;
  for (std::size_t seed = 0; seed < dense.by_seed.size(); ++seed)
    bound.push_back(dense.losses()[seed] + kHalf * (uniform.losses()[seed] - dense.losses()[seed]));
  return training::paired(bound, ada.losses()).at_most(0);
}

std::vector<Statement> of_learning(const FusionLlmFindings& findings) {
  Cases same("With the same ratio, AdaTopK costs at most half the loss that uniform top-k costs");
  Cases load("With the slowest link as busy, AdaTopK costs at most half the loss that uniform top-k costs");
  Cases converges(fmt::format(
      "A network learns with AdaTopK as it does without compression, within {:.2f} nats (published: "
      "\"convergence\")",
      kConverges));
  const LearntWith* const dense = find(findings.learnt, CompressionRule::none, 1);
  std::vector<Judged> judged;
  std::string gaps;
  for (const LearntWith& ada : findings.learnt) {
    if (ada.rule != CompressionRule::ada_top_k || dense == nullptr) continue;
    const auto beside = [&](Cases& cases, double ratio) {
      const LearntWith* const uniform = find(findings.learnt, CompressionRule::top_k, ratio);
      // Where neither learns there is nothing to halve.
      if (uniform == nullptr || !(std::min(uniform->mean_loss(), ada.mean_loss()) < kLearns)) return;
      cases.add(costs_half(*dense, *uniform, ada),
                fmt::format("ratio {:g}: {:+.3f}, uniformly with {:g} {:+.3f} nats", ada.ratio,
                            ada.mean_loss() - dense->mean_loss(), ratio,
                            uniform->mean_loss() - dense->mean_loss()));
    };
    beside(same, ada.ratio);
    beside(load, 2 * ada.ratio);
    const training::Paired gap = training::paired(dense->losses(), ada.losses());
    judged.push_back(gap.at_most(kConverges));
    gaps += fmt::format("{}ratio {:g}: {}", gaps.empty() ? "" : "; ", ada.ratio, gap.text());
  }
  // The ratio is not published.
  if (!judged.empty()) {
    const auto all = [&](Judged one) { return std::count(judged.begin(), judged.end(), one); };
    const bool both = all(Judged::holds) > 0 && all(Judged::fails) > 0;
    converges.add(both                                       ? Judged::not_comparable
                  : all(Judged::holds) == std::ssize(judged) ? Judged::holds
                  : all(Judged::fails) == std::ssize(judged) ? Judged::fails
                                                             : Judged::undecided,
                  gaps + " nats");
  }
  return {same.finish(), load.finish(), converges.finish()};
}

}  // namespace

std::string figure_text(double figure) {
  constexpr double kLong = 1000;
  return figure < kLong ? fmt::format("{:.3g}", figure) : fmt::format("{:.0f}", figure);
}

std::string Rival::name() const { return fmt::format("{}, {}", name_of(method), name_of(rule)); }

const std::vector<Rival>& rivals() {
  static const std::vector<Rival> kRivals = {{PlanMethod::equal_number, CompressionRule::none},
                                             {PlanMethod::equal_work, CompressionRule::none},
                                             {PlanMethod::equal_number, CompressionRule::top_k},
                                             {PlanMethod::equal_work, CompressionRule::top_k}};
  return kRivals;
}

std::vector<double> speed_ups(const Iterations& iterations, const std::string& setting,
                              const std::string& model, const Rival& rival) {
  std::vector<double> values;
  for (const std::uint64_t seed : each(iterations, model, &Iteration::seed)) {
    const Iteration* const one =
        iterations.find(setting, model, seed, PlanMethod::op_fence, CompressionRule::ada_top_k);
    const Iteration* const other = iterations.find(setting, model, seed, rival.method, rival.rule);
    if (one != nullptr && other != nullptr) values.push_back(speed(*one, *other));
  }
  return values;
}

double over_the_best(const Iterations& iterations, const std::string& setting, const std::string& model) {
  std::map<std::uint64_t, double> least;
  for (const Rival& rival : rivals())
    for (const std::uint64_t seed : each(iterations, model, &Iteration::seed)) {
      const Iteration* const one =
          iterations.find(setting, model, seed, PlanMethod::op_fence, CompressionRule::ada_top_k);
      const Iteration* const other = iterations.find(setting, model, seed, rival.method, rival.rule);
      if (one == nullptr || other == nullptr) continue;
      const auto found = least.emplace(seed, HUGE_VAL).first;
      found->second = std::min(found->second, speed(*one, *other));
    }
  std::vector<double> values;
  for (const auto& [seed, value] : least) values.push_back(value);
  return geometric_mean(values);
}

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return values.empty() ? 0 : std::exp(sum / static_cast<double>(values.size()));
}

std::vector<Statement> statements_of(const PublishedFusionLlm& published, const FusionLlmFindings& findings) {
  std::vector<Statement> all = of_published(published, findings);
  for (Statement& one : of_parts(published, findings)) all.push_back(std::move(one));
  all.push_back(of_heterogeneity(
      published, findings,
      fmt::format(
          "Where links between sites have a half to a quarter of the bandwidth, OP-Fence with AdaTopK is at "
          "least {:g} times as fast as equal numbers without compression",
          kMildGain),
      kMildGain, [](double times) { return times > 1 && times <= kMildHeterogeneity; }));
  all.push_back(of_heterogeneity(
      published, findings,
      fmt::format("Where they have a fiftieth or less, it is at least {:g} times as fast", kGreatGain),
      kGreatGain, [](double times) { return times >= kGreatHeterogeneity; }));
  all.push_back(of_the_closed_form(findings));
  for (Statement& one : of_learning(findings)) all.push_back(std::move(one));
  return all;
}

}  // namespace dear::studies::fusionllm
