#include "studies/paper/headline.h"

#include "studies/paper/calibrate.h"
#include "studies/paper/paper_tables.h"
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cluster/calibration.h"
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

constexpr const char* kDear = "dear-replicated";  // the paper's own form
constexpr int kHalvings = 50;
constexpr double kLeast = 1e-6, kMostSeconds = 1e3;  // between which a constant lies

struct Job {
  Workload workload;
  Cluster cluster;
};

void add_to_buffers(Job& job, double seconds) { job.cluster.software.buffer_seconds = seconds; }
void add_to_tensors(Job& job, double seconds) {
  for (Layer& layer : job.workload.layers)
    layer.backward_seconds += seconds * static_cast<double>(layer.tensors.size());
}
void add_to_launches(Job& job, double seconds) { job.cluster.software.launch_seconds += seconds; }
void add_to_bytes(Job& job, double share) {
  job.cluster.dimensions.back().link.beta_seconds_per_byte *= 1 + share;
}

// A broadcast costs as much however many buffers it carries.
void add_to_broadcasts(Job& job, double seconds) {
  if (job.workload.buffers > 0) add_to_buffers(job, seconds / static_cast<double>(job.workload.buffers));
}

struct Cost {
  const char* of;
  bool is_share;
  bool dear_pays;
  void (*add)(Job& job, double constant);
};
constexpr std::array kCosts = {
    Cost{"each buffer that DDP broadcasts before a forward pass", false, false, add_to_buffers},
    Cost{"the broadcasts of buffers, however many there are", false, false, add_to_broadcasts},
    Cost{"each gradient tensor, of DDP alone", false, false, add_to_tensors},
    Cost{"each gradient tensor, of DeAR too", false, true, add_to_tensors},
    Cost{"each bucket, of DDP alone", false, false, add_to_launches},
    Cost{"each byte between nodes, of DDP alone", true, false, add_to_bytes},
    Cost{"each byte between nodes, of DeAR too", true, true, add_to_bytes}};

// On the calibrated network, but for what buffers cost, which is fitted here.
Job job_of(std::string_view model, const std::string& cluster, int ranks) {
  Job job{.workload = {}, .cluster = find_cluster("calibrated-" + cluster, ranks)};
  job.cluster.software.buffer_seconds = 0;
  job.workload = zoo::make_workload(zoo::find_model(model), zoo::find_device(job.cluster.device));
  return job;
}

double seconds_of(const Job& job, std::string_view policy, std::string_view fusion) {
  const cost::CollectiveTimes times = cost::times_on(job.cluster, {.algorithm = "nccl"});
  const Policy& found = find_policy(policy);
  const Grouping grouping = FusionChoice::of_simulation(fusion).resolve(found, job.workload, times);
  return sim::iteration_seconds(found, job.workload, {grouping}, job.cluster, times).front();
}

// The constant with which DDP takes as long as was published, if one does.
std::optional<double> fit(const Cost& cost, const Job& job, const PublishedIteration& figure) {
  const auto with = [&](double constant) {
    Job changed = job;
    cost.add(changed, constant);
    return seconds_of(changed, figure.policy, "usual");
  };
  double low = 0, high = kLeast;
  while (high < kMostSeconds && with(high) < figure.seconds) high *= 2;
  if (high >= kMostSeconds) return {};
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (with(middle) < figure.seconds ? low : high) = middle;
  }
  return (low + high) / 2;
}

FittedCost fitted(const Cost& cost, const PublishedIteration& figure) {
  FittedCost result{.of = cost.of,
                    .constant = fit(cost, job_of(figure.model, figure.cluster, figure.ranks), figure),
                    .is_share = cost.is_share};
  if (!result.constant) return result;
  result.usual_gain = result.planned_gain = -1;
  for (const char* const model : kPaperModels) {
    const Job job = job_of(model, figure.cluster, figure.ranks);
    Job changed = job;
    cost.add(changed, *result.constant);
    const double theirs = seconds_of(changed, figure.policy, "usual");
    result.seconds.push_back(theirs);
    const Job& ours = cost.dear_pays ? changed : job;
    result.usual_gain = std::max(result.usual_gain, theirs / seconds_of(ours, kDear, "usual") - 1);
    const double gain = theirs / seconds_of(ours, kDear, "planned") - 1;
    if (gain <= result.planned_gain) continue;
    result.planned_gain = gain;
    result.where = model;
  }
  return result;
}

OtherNetwork other_network(const PublishedGain& gain, const PublishedIteration& figure, double a_buffer) {
  OtherNetwork other{.cluster = gain.cluster,
                     .reported = gain.largest,
                     .same_gain = -1,
                     .most_seconds = std::numeric_limits<double>::infinity()};
  for (const char* const model : kPaperModels) {
    Job job = job_of(model, gain.cluster, figure.ranks);
    const double ours = seconds_of(job, kDear, "planned");
    const double theirs = seconds_of(job, figure.policy, "usual");
    add_to_buffers(job, a_buffer);
    other.same_gain = std::max(other.same_gain, seconds_of(job, figure.policy, "usual") / ours - 1);
    if (job.workload.buffers > 0)  // nothing hides it
      other.most_seconds = std::min(other.most_seconds, ((1 + gain.largest) * ours - theirs) /
                                                            static_cast<double>(job.workload.buffers));
  }
  return other;
}

FastestRival fastest_rival(const Published& published, const PublishedIteration& figure) {
  std::map<std::string_view, int> models;
  for (const char* const model : kPaperModels) {
    Job job = job_of(model, figure.cluster, figure.ranks);
    job.cluster = find_cluster("calibrated-" + figure.cluster, figure.ranks);
    std::map<double, std::string_view> by_seconds;
    for (const char* const rival : kComparedInThePaper)
      by_seconds.try_emplace(seconds_of(job, rival, "usual"), rival);
    ++models[by_seconds.begin()->second];
  }
  FastestRival fastest{.policy = {}};
  for (const char* const rival : kComparedInThePaper)
    if (models[rival] > fastest.models) fastest = {.policy = rival, .models = models[rival]};
  const std::vector<double> throughput = modelled(published, kRtx2080Ti);
  for (std::size_t i = 0; i < throughput.size(); ++i) {
    const PublishedFigure& one = published.figures[i];
    if (one.policy == fastest.policy && one.cluster == figure.cluster)
      fastest.too_fast_by.emplace_back(one.model, throughput[i] / one.samples_per_second);
  }
  return fastest;
}

std::string percent_of(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::string row_of(const std::string& of, const std::string& constant, const std::vector<double>& seconds,
                   const std::string& gains) {
  std::string row = fmt::format("| {} | {} |", of, constant);
  for (const double one : seconds) row += fmt::format(" {:.1f} |", 1e3 * one);
  return row + gains + "\n";
}

constexpr const char* kFromCode = R"(
What the code of that time says (PyTorch 1.8.1, which the group's benchmark names, with DDP's defaults, and the
group's own code):

- DDP sends the buffers before each forward pass: all of one dtype in one broadcast, then a copy for each buffer.
  A BatchNorm has three, of two dtypes. Horovod, MG-WFBP, ByteScheduler and DeAR send none while they train.
- DDP copies each gradient into its bucket and back, from a hook in C++. DeAR copies each twice as well, from a hook
  in Python, and MG-WFBP does. So a cost of each gradient tensor is not DDP's alone.
- Bytes and launches are as above for DDP as for the others.

A cost of buffers is the only one of these that DDP pays alone. What it is, is not known: what copies take of it was
[measured](../measurements.md#what-ddp-pays-beside-its-bytes) on a host with free cores. Anything that grows with the
number of normalised layers would fit as well. One figure fits one constant, so that of another model would tell. The
abstract does not say over which rival its largest gain is.)";

}  // namespace

bool FittedCost::gives(double reported) const {
  constexpr double kHalfAPercent = 0.005;
  return constant && usual_gain - kHalfAPercent <= reported && reported <= planned_gain + kHalfAPercent;
}

Headline explain(const Published& published) {
  if (published.iterations.empty())
    throw ConfigError(
        "no iteration is published to which a cost of DDP could be fitted: add it to the iterations");
  if (published.iterations.size() > 1)
    throw ConfigError(fmt::format(
        "{} iterations are published, and a constant is fitted to one: keep one of the iterations",
        published.iterations.size()));
  Headline headline{.figure = published.iterations.front(), .reported = 0};
  const PublishedIteration& figure = headline.figure;
  const auto without = [&](std::string_view model) {
    return seconds_of(job_of(model, figure.cluster, figure.ranks), figure.policy, "usual");
  };
  headline.figure_seconds = without(figure.model);
  if (headline.figure_seconds > figure.seconds)
    throw ConfigError(
        fmt::format("{} of {} takes {:.1f} ms in the model, and no cost that is added makes {:.1f} ms of it: "
                    "correct the published iteration",
                    figure.policy, figure.model, 1e3 * headline.figure_seconds, 1e3 * figure.seconds));
  for (const char* const model : kPaperModels) headline.without.push_back(without(model));
  for (const Cost& cost : kCosts) headline.costs.push_back(fitted(cost, figure));
  for (const PublishedGain& gain : published.gains) {
    if (gain.cluster == figure.cluster)
      headline.reported = gain.largest;
    else if (headline.costs.front().constant)
      headline.others.push_back(other_network(gain, figure, *headline.costs.front().constant));
  }
  if (headline.reported == 0)
    throw ConfigError(
        fmt::format("no gain on cluster '{}' is published: add it to the gains", figure.cluster));
  headline.fastest = fastest_rival(published, figure);
  return headline;
}

std::string conclusion_of(const Headline& headline) {
  std::string giving;
  const FittedCost* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const FittedCost& cost : headline.costs) {
    if (!cost.constant) continue;
    if (cost.gives(headline.reported)) {
      giving +=
          fmt::format("{}{} ({} with usual buckets, {} with planned ones, on {})", giving.empty() ? "" : "; ",
                      cost.of, percent_of(cost.usual_gain), percent_of(cost.planned_gain), cost.where);
      continue;
    }
    const double apart = std::max(cost.usual_gain - headline.reported, headline.reported - cost.planned_gain);
    if (apart >= least) continue;
    least = apart;
    nearest = &cost;
  }
  const std::string reported = percent_of(headline.reported);
  std::string text =
      giving.empty()
          ? fmt::format("None of these costs gives the {} that the paper reports.", reported)
          : fmt::format("Of these costs the {} that the paper reports agree with {}.", reported, giving);
  if (nearest != nullptr)
    text += fmt::format(" {} is {}: {} to {}, on {}.",
                        giving.empty() ? "The nearest" : "The next best explanation", nearest->of,
                        percent_of(nearest->usual_gain), percent_of(nearest->planned_gain), nearest->where);
  return text;
}

std::string conclusion_of(const OtherNetwork& other, const std::string& figure_cluster, double seconds) {
  const auto of_preset = [](const std::string& cluster) {
    const double buffer = find_cluster("calibrated-" + cluster).software.buffer_seconds;
    return fmt::format("`calibrated-{}` has {}", cluster,
                       buffer > 0 ? fmt::format("{:.3f} ms a buffer", 1e3 * buffer) : "none");
  };
  const std::string verdict =
      other.most_seconds < seconds
          ? fmt::format("there a buffer costs at most {:.3f} ms. So it is a cost of {}, not of every network",
                        1e3 * std::max(0.0, other.most_seconds), figure_cluster)
          : fmt::format("there a buffer may cost as much. So it need not be a cost of {} alone",
                        figure_cluster);
  return fmt::format(
      "On {} the same cost of a buffer would make DeAR's largest gain over DDP {}, where {} is reported over "
      "all rivals: {}. {}, {}.",
      other.cluster, percent_of(other.same_gain), percent_of(other.reported), verdict,
      of_preset(figure_cluster), of_preset(other.cluster));
}

std::string conclusion_of(const FastestRival& fastest, const std::string& cluster) {
  constexpr double kMuch = 1.05;
  std::string text = fmt::format("The fastest rival here is {}, on {} of {} models; ", fastest.policy,
                                 fastest.models, kPaperModels.size());
  if (fastest.too_fast_by.empty())
    return text + fmt::format(
                      "no throughput of it on {} is published, so how far to believe that, nothing "
                      "here tells.",
                      cluster);
  std::string ratios;
  bool too_fast = false;
  for (const auto& [model, ratio] : fastest.too_fast_by) {
    ratios += fmt::format("{}{:.2f} times as much with {}", ratios.empty() ? "" : ", ", ratio, model);
    too_fast = too_fast || ratio > kMuch;
  }
  return text + fmt::format("of its published throughput on {} the network above makes {}. {}", cluster,
                            ratios,
                            too_fast ? "So the gain over it comes out too small here."
                                     : "So the gain over it does not come out too small here.");
}

std::string report_of(const Headline& headline) {
  const PublishedIteration& figure = headline.figure;
  std::string text = fmt::format(
      "## From what the headline comes\n\n{} takes {:.1f} ms an iteration of {} on {} ranks of {} ({}). "
      "The network above says {:.1f} ms. Each line is one cost that may be missing, fitted "
      "to this "
      "figure alone; the other models are predictions, for which no figure was at hand. `gain` is the "
      "largest of "
      "`{}` over DDP, with its usual and with planned buckets. The paper reports up to {}, which nothing "
      "here was "
      "fitted to, and tunes its buckets: a cost gives the headline if {} lies between the two gains.\n\n| "
      "one more "
      "cost | constant |",
      figure.method, 1e3 * figure.seconds, figure.model, figure.ranks, figure.cluster, figure.source,
      1e3 * headline.figure_seconds, kDear, percent_of(headline.reported), percent_of(headline.reported));
  std::string rule = "|---|---|";
  for (const char* const model : kPaperModels) {
    text += fmt::format(" {}{} |", model, model == figure.model ? ", fitted" : "");
    rule += "---|";
  }
  text += fmt::format(" gain, usual | gain, planned | gives {} |\n{}---|---|---|\n",
                      percent_of(headline.reported), rule);
  text += row_of("none", "-", headline.without, " | | |");
  for (const FittedCost& cost : headline.costs) {
    if (!cost.constant) {
      text += fmt::format("| {} | cannot explain it |", cost.of);
      for (std::size_t i = 0; i < kPaperModels.size(); ++i) text += " |";
      text += " | | no |\n";
      continue;
    }
    text += row_of(
        cost.of, cost.is_share ? percent_of(*cost.constant) : fmt::format("{:.3f} ms", 1e3 * *cost.constant),
        cost.seconds,
        fmt::format(" {} | {} | {} |", percent_of(cost.usual_gain), percent_of(cost.planned_gain),
                    cost.gives(headline.reported) ? "**yes**" : "no"));
  }
  text += fmt::format("\n**{}**\n{} {}\n\n", conclusion_of(headline), kFromCode,
                      conclusion_of(headline.fastest, figure.cluster));
  for (const OtherNetwork& other : headline.others)
    text += conclusion_of(other, figure.cluster, *headline.costs.front().constant) + "\n\n";
  return text;
}

}  // namespace dear::studies
