#include "studies/paper/calibrate.h"

#include "studies/report/downhill_simplex.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/schedule/policies/fusion_choice.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/zoo/device.h"
#include "dear/workload/zoo/make_workload.h"
#include "dear/workload/zoo/models.h"

namespace dear::studies {
namespace {

// The loss has valleys with nothing between them to lead from one to another: where communication is hidden,
// no constant changes an iteration. So the search begins at the best point of a grid.
constexpr std::array kLaunches = {0.5e-3, 0.7e-3, 0.9e-3, 1.1e-3};
constexpr std::array kHolds = {0.6e-3, 0.9e-3, 1.2e-3, 1.5e-3};
constexpr std::array kBandwidths = {4e9, 5e9, 6e9, 7e9};
constexpr std::array kSlowdowns = {1.1, 1.4, 1.7};
constexpr std::array kFirstSteps = {0.1, -0.05};  // of one search after another, each from the last's end
constexpr int kMoves = 50;

// A figure's job on its cluster as it was before the fit.
struct Setting {
  const PublishedFigure* figure;
  const Policy* policy;
  Workload workload;
  Cluster cluster;
  double samples;  // in an iteration
};

Setting setting_of(const Published& published, const PublishedFigure& figure) {
  const PublishedJob& job = published.job_of(figure);
  const zoo::Model& model = zoo::find_model(job.model);
  const Cluster cluster = find_cluster(figure.cluster, published.ranks);
  const zoo::WorkloadOptions usual;
  return {.figure = &figure,
          .policy = &find_policy(figure.policy),
          .workload = zoo::make_workload(
              model, zoo::find_device(cluster.device),
              {.batch = job.batch,
               .iteration_seconds = job.alone_seconds,
               .forward_share = model.measured ? model.measured->forward_share : usual.forward_share}),
          .cluster = cluster,
          .samples = static_cast<double>(published.ranks) * static_cast<double>(job.batch)};
}

Grouping grouping_of(const Setting& setting, const cost::CollectiveTimes& times) {
  if (setting.figure->fusion == "tensor")
    return group_backward(setting.workload, [](const Bucket&, std::size_t, TensorId) { return true; });
  return FusionChoice::of_simulation(setting.figure->fusion)
      .resolve(*setting.policy, setting.workload, times);
}

cost::CollectiveTimes times_with(const Setting& setting, const Calibration& constants) {
  return cost::times_on(calibrated(setting.cluster, constants), {.algorithm = "nccl"});
}

// The policy chooses its buckets as if `in_mind` were the constants.
double samples_per_second(const Setting& setting, const Calibration& constants, const Calibration& in_mind) {
  const Grouping grouping = grouping_of(setting, times_with(setting, in_mind));
  return setting.samples / sim::iteration_seconds(*setting.policy, setting.workload, {grouping},
                                                  calibrated(setting.cluster, constants),
                                                  times_with(setting, constants))
                               .front();
}

double samples_per_second(const Setting& setting, const Calibration& constants) {
  return samples_per_second(setting, constants, constants);
}

// The shortest launch by which the rule of the policy merges all tensors.
std::optional<Calibration> merging(const Setting& setting, const Calibration& constants) {
  constexpr double kLongest = 1;
  constexpr int kHalvings = 30;
  const auto with = [&](double launch) {
    Calibration changed = constants;
    changed.launch_seconds = launch;
    return changed;
  };
  const auto merges = [&](double launch) {
    return grouping_of(setting, times_with(setting, with(launch))).size() == 1;
  };
  double low = constants.launch_seconds, high = low;
  while (!merges(high)) {
    low = std::exchange(high, 2 * high);
    if (high > kLongest) return std::nullopt;
  }
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (merges(middle) ? high : low) = middle;
  }
  return with(high);
}

std::vector<double> logarithms(const Calibration& constants) {
  return {std::log(constants.launch_seconds), std::log(constants.hold_seconds),
          std::log(constants.node_bytes_per_second), std::log(constants.node_slowdown)};
}

Calibration from_logarithms(const std::vector<double>& point) {
  return {.launch_seconds = std::exp(point[0]),
          .hold_seconds = std::exp(point[1]),
          .node_bytes_per_second = std::exp(point[2]),
          .node_slowdown = std::exp(point[3])};
}

std::vector<double> best_of_grid(const std::function<double(const std::vector<double>&)>& loss) {
  std::vector<double> best;
  double least = std::numeric_limits<double>::infinity();
  const auto look = [&](const Calibration& constants) {
    const std::vector<double> point = logarithms(constants);
    const double value = loss(point);
    if (value >= least) return;
    least = value;
    best = point;
  };
  for (const double launch : kLaunches)
    for (const double hold : kHolds)
      for (const double bandwidth : kBandwidths)
        for (const double slowdown : kSlowdowns) look({launch, hold, bandwidth, slowdown});
  return best;
}

// By figure: the number of its job, and that of its cluster in the order of first mention.
std::vector<std::pair<std::size_t, std::size_t>> places_of(const Published& published) {
  std::vector<std::string> clusters;
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (const PublishedFigure& figure : published.figures) {
    const auto number = [&](const std::vector<std::string>& names, const std::string& name) {
      return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    };
    if (number(clusters, figure.cluster) == clusters.size()) clusters.push_back(figure.cluster);
    places.emplace_back(&published.job_of(figure) - published.jobs.data(), number(clusters, figure.cluster));
  }
  return places;
}

// Two figures whose order is one, for one job on one cluster.
bool is_pair(const PublishedFigure& one, const PublishedFigure& other) {
  const double a = one.samples_per_second, b = other.samples_per_second;
  return one.model == other.model && one.cluster == other.cluster &&
         std::max(a, b) >= (1 + kTie) * std::min(a, b);
}

bool in_order(const std::vector<PublishedFigure>& figures, const std::vector<double>& modelled, std::size_t a,
              std::size_t b) {
  return (figures[a].samples_per_second < figures[b].samples_per_second) == (modelled[a] < modelled[b]);
}

std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

std::string line_of(std::string_view name, const Judgement& judgement) {
  return fmt::format("| {} | {} | {} | {} of {} ({:.0f} %) |\n", name, percent(judgement.median_error),
                     percent(judgement.largest_error), judgement.pairs_in_order, judgement.pairs,
                     judgement.pairs > 0 ? 100.0 * judgement.pairs_in_order / judgement.pairs : 100.0);
}

}  // namespace

std::vector<bool> diagonal(const Published& published) {
  std::vector<bool> fitted;
  for (const auto& [job, cluster] : places_of(published)) fitted.push_back(job % 2 == cluster % 2);
  return fitted;
}

std::vector<bool> other_half(std::vector<bool> fitted) {
  fitted.flip();
  return fitted;
}

std::vector<double> modelled(const Published& published, const Calibration& constants) {
  std::vector<double> samples;
  for (const PublishedFigure& figure : published.figures)
    samples.push_back(samples_per_second(setting_of(published, figure), constants));
  return samples;
}

Judgement judge(const Published& published, const std::vector<double>& modelled,
                const std::vector<bool>& counts) {
  Judgement judgement;
  std::vector<double> errors;
  const std::vector<PublishedFigure>& figures = published.figures;
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (!counts[i]) continue;
    errors.push_back(std::abs(modelled[i] / figures[i].samples_per_second - 1));
    for (std::size_t j = i + 1; j < figures.size(); ++j) {
      if (!counts[j] || !is_pair(figures[i], figures[j])) continue;
      ++judgement.pairs;
      judgement.pairs_in_order += in_order(figures, modelled, i, j) ? 1 : 0;
    }
  }
  if (errors.empty()) return judgement;
  std::sort(errors.begin(), errors.end());
  const std::size_t half = errors.size() / 2;
  judgement.median_error = errors.size() % 2 == 1 ? errors[half] : (errors[half - 1] + errors[half]) / 2;
  judgement.largest_error = errors.back();
  return judgement;
}

Fit fit(const Published& published, const std::vector<bool>& fitted) {
  std::vector<Setting> settings;
  for (std::size_t i = 0; i < published.figures.size(); ++i)
    if (fitted[i]) settings.push_back(setting_of(published, published.figures[i]));
  if (settings.empty()) throw ConfigError("nothing can be fitted to no figure: give published figures");
  const auto loss = [&](const std::vector<double>& point) {
    const Calibration constants = from_logarithms(point);
    if (constants.node_slowdown < 1) return std::numeric_limits<double>::infinity();
    double squares = 0;
    for (const Setting& setting : settings)
      squares +=
          std::pow(std::log(samples_per_second(setting, constants) / setting.figure->samples_per_second), 2);
    return squares;
  };
  std::vector<double> best = best_of_grid(loss);
  for (const double step : kFirstSteps) best = downhill_simplex(loss, best, step, kMoves);
  Fit result{.constants = from_logarithms(best),
             .fitted = fitted,
             .modelled = {},
             .of_fitted = {},
             .of_held_back = {},
             .of_all = {}};
  result.modelled = modelled(published, result.constants);
  result.of_fitted = judge(published, result.modelled, fitted);
  result.of_held_back = judge(published, result.modelled, other_half(fitted));
  result.of_all = judge(published, result.modelled, std::vector<bool>(fitted.size(), true));
  return result;
}

std::string report_of(const Published& published, const Fit& fit, const Fit& swapped) {
  const auto constants_of = [](std::string_view name, const Calibration& constants) {
    return fmt::format("| {} | {:.3f} ms | {:.2f} GB/s | {:.2f} | {:.3f} ms |\n", name,
                       1e3 * constants.launch_seconds, 1e-9 * constants.node_bytes_per_second,
                       constants.node_slowdown, 1e3 * constants.hold_seconds);
  };
  std::string text =
      "| fitted to | launch of a collective | link inside a node | slower beside computation | hold of a "
      "layer "
      "|\n|---|---|---|---|---|\n";
  text += constants_of("the fitted half", fit.constants);
  text += constants_of("the other half", swapped.constants);
  text += "\n| figures | median error | largest error | pairs of methods in order |\n|---|---|---|---|\n";
  text += line_of("fitted half", fit.of_fitted);
  text += line_of("**held-back half**", fit.of_held_back);
  text += line_of("all", fit.of_all);
  text += line_of("halves swapped: fitted", swapped.of_fitted);
  text += line_of("halves swapped: held back", swapped.of_held_back);
  text +=
      "\n| model | cluster | method | policy, fusion | published | modelled | error | half | swapped |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < published.figures.size(); ++i) {
    const PublishedFigure& figure = published.figures[i];
    const auto error = [&](const Fit& of) {
      return fmt::format("{:+.1f} %", 100 * (of.modelled[i] / figure.samples_per_second - 1));
    };
    text +=
        fmt::format("| {} | {} | {} | {}, {} | {:.0f} | {:.0f} | {} | {} | {} |\n", figure.model,
                    figure.cluster, figure.method, figure.policy, figure.fusion, figure.samples_per_second,
                    fit.modelled[i], error(fit), fit.fitted[i] ? "fitted" : "**held back**", error(swapped));
  }
  return text;
}

Unexplained least_explained(const Published& published, const Fit& fit) {
  const std::vector<PublishedFigure>& figures = published.figures;
  std::optional<Unexplained> least;
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const double error = fit.modelled[i] / figures[i].samples_per_second - 1;
    if (fit.fitted[i] || (least && std::abs(error) <= std::abs(least->error))) continue;
    least = {.figure = i, .error = error};
  }
  if (!least) throw ConfigError("every published figure is fitted, so that none tells what the model misses");
  const PublishedFigure& figure = figures[least->figure];
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (figures[i].policy == "serial" && figures[i].model == figure.model &&
        figures[i].cluster == figure.cluster)
      least->of_serial = figure.samples_per_second / figures[i].samples_per_second;
    for (std::size_t j = i + 1; j < figures.size(); ++j) {
      if (fit.fitted[i] || fit.fitted[j] || !is_pair(figures[i], figures[j]) ||
          in_order(figures, fit.modelled, i, j))
        continue;
      ++least->pairs_out_of_order;
      if (i == least->figure || j == least->figure) ++least->of_this_figure;
    }
  }
  const Setting setting = setting_of(published, figure);
  least->buckets = grouping_of(setting, times_with(setting, fit.constants)).size();
  const std::optional<Calibration> in_mind = merging(setting, fit.constants);
  if (!in_mind) return *least;
  least->merging_launch_seconds = in_mind->launch_seconds;
  for (const PublishedFigure& other : figures)
    if (other.method == figure.method && other.cluster == figure.cluster)
      least->merged.emplace_back(other.model,
                                 samples_per_second(setting_of(published, other), fit.constants, *in_mind) /
                                     other.samples_per_second);
  return *least;
}

std::string conclusion_of(const Published& published, const Unexplained& one) {
  constexpr double kMuch = 0.05;
  const PublishedFigure& figure = published.figures.at(one.figure);
  std::string text = fmt::format(
      "**What the model explains least** of the held-back half: {} with {} on {}, where it is off by {:+.1f} "
      "%. ",
      figure.method, figure.model, figure.cluster, 100 * one.error);
  if (one.of_serial)
    text += std::abs(*one.of_serial - 1) <= kMuch
                ? "That figure is as slow as nothing overlapped. "
                : fmt::format("That figure is {:.2f} times the throughput of nothing overlapped. ",
                              *one.of_serial);
  text += fmt::format("Of the {} pairs out of order in this half {} are of this figure. ",
                      one.pairs_out_of_order, one.of_this_figure);
  text += fmt::format("By the fitted constants {} has {} there. ", figure.policy,
                      one.buckets == 1 ? "one bucket" : fmt::format("{} buckets", one.buckets));
  if (!one.merging_launch_seconds)
    return text + "No start-up up to a second would make one bucket of them.\n";
  text +=
      fmt::format("Its rule makes one bucket from a launch of {:.2f} ms on. With the buckets of that launch ",
                  1e3 * *one.merging_launch_seconds);
  bool explains = true;
  for (std::size_t i = 0; i < one.merged.size(); ++i) {
    const auto& [model, ratio] = one.merged[i];
    explains = explains && std::abs(ratio - 1) <= kMuch;
    text += fmt::format("{}{:.2f} times the published throughput of {}", i == 0 ? "the model makes " : ", ",
                        ratio, model);
  }
  return text + (explains ? ". So one longer start-up explains every figure of the method on this network.\n"
                          : ". So no one start-up explains every figure of the method on this network.\n");
}

}  // namespace dear::studies
