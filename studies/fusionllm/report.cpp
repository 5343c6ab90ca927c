#include "studies/fusionllm/report.h"

#include "studies/training/paired.h"
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/units.h"
#include "dear/methods/pipeline/orders.h"

namespace dear::studies::fusionllm {

using studies::percent;
namespace {

constexpr const char* kOpening = R"(# The study of FusionLLM

What was published of FusionLLM, which trains one model by a pipeline over devices that are far apart (Tang et al. 2024, arXiv
2410.12707), each statement beside what DeAR's own plans show. Written by `dear study fusionllm`; the same bytes every time on one kind of
processor. No time here was measured: devices compute at their rate, each direction of each link carries one message after the other, and every
plan is played in virtual time, as `dear pipeline simulate` does ([what is not modelled](../../pipeline.md#what-it-says-and-what-not)). The losses of the last
section are of networks that were trained. A verdict is computed, never typed: the rules stand below the table.

Four ways to cut a model are compared: `op-fence`, FusionLLM's; `plain-dp`, the best cuts for devices in the order of their list; `equal-number` of
operators and `equal-work` for each device, also in that order: from memory, not from its text, the rivals of the paper. Each sends activations and their gradients dense (`none`),
with one ratio on every link (`top-k`), or with a ratio that is the larger the slower a link is (`ada-top-k`, AdaTopK). The tolerance of fences, how communities are
found and ordered, and that a ratio counts an element with its index twice are choices of DeAR's: the abstract of the paper has none of them.

)";

std::string rules(const PublishedFusionLlm& published, const FusionLlmOptions& options) {
  return fmt::format(
      "Published figures: {}. Its rivals are not named there, nor are ratios, batches, micro-batches, or "
      "which device lies "
      "where: each assumption below is one guess, and what holds under one and not under another, or with "
      "one rival and not "
      "with another, is not comparable; so is a figure that is too low here and too high there. A speed-up "
      "agrees with the "
      "published one within {}. Without a word on seeds, a figure is the geometric mean over {} of devices. "
      "Of losses, a "
      "verdict wants the whole confidence interval of 95 % (Student's t, task by task) on one side, else it "
      "is undecided; "
      "ratios with which neither rule learns, a loss of {:.2f} nats or more, are not looked at.\n\n",
      published.source, percent(kCloseSpeedUp), counted(static_cast<std::size_t>(options.seeds), "seed"),
      kLearns);
}

std::string range_text(int least, int most) {
  return least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
}

// Nothing could have spoken against what these say.
std::vector<std::string> findings_in(const PublishedFusionLlm& published, const FusionLlmFindings& findings) {
  std::vector<std::string> all;
  const std::string& drawn = assumptions().front().name;
  for (const std::string& model : published.models) {
    std::vector<double> gains;
    int least = published.devices, most = 0;
    for (const Iteration& few : findings.fastest.all) {
      if (few.model != model || few.rule != CompressionRule::ada_top_k) continue;
      const Iteration* const one = findings.assumed.find(drawn, model, few.seed, few.method, few.rule);
      if (one == nullptr) continue;
      gains.push_back(one->seconds / few.seconds);
      least = std::min(least, few.devices);
      most = std::max(most, few.devices);
    }
    if (!gains.empty())
      all.push_back(
          fmt::format("Free to leave sites out, OP-Fence with AdaTopK takes {} of the {} devices for "
                      "`{}`, and is {} times as fast "
                      "as on all of them: links between sites cost more than further devices bring, where "
                      "memories suffice.",
                      range_text(least, most), published.devices, model, figure_text(geometric_mean(gains))));
  }
  int least[2] = {published.devices, published.devices}, most[2] = {};
  for (const Iteration& one : findings.assumed.all) {
    if (one.setting != drawn ||
        (one.method != PlanMethod::op_fence && one.method != PlanMethod::equal_number))
      continue;
    const std::size_t which = one.method == PlanMethod::op_fence ? 0 : 1;
    least[which] = std::min(least[which], one.between_sites);
    most[which] = std::max(most[which], one.between_sites);
  }
  if (most[1] > 0)
    all.push_back(
        fmt::format("As drawn, equal numbers pass from site to site at {} of {} cuts, OP-Fence at {}: these "
                    "rivals do not "
                    "know where devices lie.",
                    range_text(least[1], most[1]), published.devices - 1, range_text(least[0], most[0])));
  double bytes[2] = {};
  for (const Iteration& one : findings.assumed.all)
    if (one.setting == drawn && one.method == PlanMethod::op_fence) {
      if (one.rule == CompressionRule::none) bytes[0] += one.bytes;
      if (one.rule == CompressionRule::ada_top_k) bytes[1] += one.bytes;
    }
  if (bytes[1] > 0)
    all.push_back(
        fmt::format("AdaTopK sends {} of the bytes of all links, nearly all of them inside of sites, where "
                    "they cost little.",
                    percent(bytes[1] / bytes[0])));
  const LearntWith* const dense = find(findings.learnt, CompressionRule::none, 1);
  for (const LearntWith& one : findings.learnt)
    if (dense != nullptr && one.rule == CompressionRule::ada_top_k && one.mean_loss() < kLearns &&
        one.mean_whole_loss() > 2 * one.mean_loss())
      all.push_back(
          fmt::format("What was learnt with AdaTopK and a ratio of {:g} needs it: with nothing compressed "
                      "the test's loss is {:.3f} nats instead "
                      "of {:.3f}.",
                      one.ratio, one.mean_whole_loss(), one.mean_loss()));
  return all;
}

// Writes figures over seeds as "21.7 (20.1 to 24.0)".
std::string mean_and_range(const std::vector<double>& values) {
  if (values.empty()) return "";
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (values.size() == 1) return figure_text(values.front());
  return fmt::format("{} ({} to {})", figure_text(geometric_mean(values)), figure_text(*least),
                     figure_text(*most));
}

template <class Figure>
std::vector<double> figures(const Iterations& iterations, const std::string& setting,
                            const std::string& model, PlanMethod method, CompressionRule rule,
                            Figure figure) {
  std::vector<double> values;
  for (const Iteration& one : iterations.all)
    if (one.setting == setting && one.model == model && one.method == method && one.rule == rule)
      values.push_back(figure(one));
  return values;
}

double seconds_of(const Iteration& one) { return one.seconds; }

// A row is a setting and model: the iteration of FusionLLM, and how many times as long the rivals take.
std::string table_of_settings(const std::vector<Setting>& settings, const PublishedFusionLlm& published,
                              const Iterations& iterations, const std::string& heading,
                              bool with_communities) {
  std::string text = fmt::format("| {} | model |", heading), rule = "\n|---|---|";
  if (with_communities) {
    text += " communities |";
    rule += "---|";
  }
  text += " op-fence, ada-top-k |";
  rule += "---|";
  std::vector<Rival> columns{{PlanMethod::op_fence, CompressionRule::top_k},
                             {PlanMethod::op_fence, CompressionRule::none},
                             {PlanMethod::plain_dp, CompressionRule::ada_top_k}};
  columns.insert(columns.end(), rivals().begin(), rivals().end());
  for (const Rival& column : columns) {
    text += fmt::format(" {} |", column.name());
    rule += "---|";
  }
  text += rule + "\n";
  for (const Setting& setting : settings)
    for (const std::string& model : published.models) {
      const std::vector<double> ours = figures(iterations, setting.name, model, PlanMethod::op_fence,
                                               CompressionRule::ada_top_k, seconds_of);
      if (ours.empty()) continue;
      text += fmt::format("| {} | `{}` |", setting.name, model);
      if (with_communities) text += fmt::format(" {} |", communities_of(setting, 1));
      text += fmt::format(" {} |", format_seconds(geometric_mean(ours)));
      for (const Rival& column : columns)
        text += fmt::format(" {} |", mean_and_range(speed_ups(iterations, setting.name, model, column)));
      text += "\n";
    }
  return text;
}

std::string list_of(const std::vector<Setting>& settings, std::size_t count) {
  std::string text = "\n";
  for (std::size_t i = 0; i < std::min(count, settings.size()); ++i)
    text += fmt::format("- {}: {}.\n", settings[i].name, settings[i].says);
  return text;
}

// Each reason is told once, with how many plans it concerns.
std::string left_out_of(const Iterations& iterations) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const LeftOut& one : iterations.left_out) by_reason[one.reason].push_back(one.what);
  std::string text;
  for (const auto& [reason, plans] : by_reason)
    text += fmt::format("\nLeft out: {}{}, because {}.\n", plans.front(),
                        plans.size() == 1 ? "" : fmt::format(" and {} more", plans.size() - 1), reason);
  return text;
}

std::string assumptions_of(const PublishedFusionLlm& published, const FusionLlmOptions& options,
                           const FusionLlmFindings& findings) {
  return "## What nobody published\n\nWhich device lies where, what links between sites carry, how a batch "
         "is cut and what "
         "travels decide how much is gained. Each assumption changes one thing of the first. A row has the "
         "iteration of "
         "OP-Fence with AdaTopK, and how many times as long the other plans take: the geometric mean over "
         "seeds, and the "
         "range.\n\n" +
         table_of_settings(assumptions(), published, findings.assumed, "assumption", false) +
         list_of(assumptions(), options.assumptions) + left_out_of(findings.assumed) +
         "\nIn GPT-2 the first and the last device hold the same matrix, and exchange its gradient once an "
         "iteration. OP-Fence orders devices so that a fast link lies between the two; equal cuts do not "
         "look "
         "at that link.\n\n";
}

std::string bandwidths_of() {
  return "## By bandwidth between sites\n\nThe devices as drawn, with 10 Gb/s on every link inside of a site "
         "and one bandwidth on every link between two; latencies as drawn. Time is over that of equal "
         "numbers "
         "without compression, the geometric mean over seeds. OP-Fence orders devices by bandwidth alone: "
         "where that is the same everywhere it sees no sites, although latencies between them remain.\n\n"
         "![Speed-ups by bandwidth between sites](bandwidths.svg)\n\n";
}

std::string topologies_of(const PublishedFusionLlm& published, const FusionLlmOptions& options,
                          const FusionLlmFindings& findings) {
  return "## By topology\n\nForty-eight devices in other sites, all else as drawn. Communities are those "
         "that OP-Fence finds in the links of "
         "seed 1. The bars show the fastest of the four equal cuts.\n\n![Speed-ups by "
         "topology](topologies.svg)\n\n" +
         table_of_settings(topologies(), published, findings.by_topology, "topology", true) +
         list_of(topologies(), options.topologies) + left_out_of(findings.by_topology) + "\n";
}

std::string schedules_of(const PublishedFusionLlm& published, const FusionLlmFindings& findings) {
  std::string text =
      "## By schedule\n\nOP-Fence with AdaTopK, on the devices as drawn and on those of one site; "
      "`interleaved` has two stages a device. "
      "A bubble is the part of all devices' time in which they compute nothing. Where the links bound an "
      "iteration no schedule "
      "helps; `interleaved` sends everything twice. Times and bubbles are geometric means over seeds, "
      "memories the most of any device and seed.\n\n"
      "![Iterations by schedule](schedules.svg)\n\n| devices | model | schedule | iteration | bubble | peak "
      "memory |\n|---|---|---|---|---|---|\n";
  for (const Setting& setting : schedules())
    for (const std::string& model : published.models) {
      std::vector<double> seconds, bubbles;
      double peak = 0;
      for (const Iteration& one : findings.by_schedule.all) {
        if (one.setting != setting.name || one.model != model || one.schedule != setting.schedule) continue;
        seconds.push_back(one.seconds);
        bubbles.push_back(one.bubble);
        peak = std::max(peak, one.peak_bytes);
      }
      if (seconds.empty()) continue;
      text += fmt::format("| {} | `{}` | {} | {} | {} | {} |\n", setting.name, model,
                          name_of(setting.schedule), format_seconds(geometric_mean(seconds)),
                          percent(geometric_mean(bubbles)), format_bytes(static_cast<std::int64_t>(peak)));
    }
  return text + left_out_of(findings.by_schedule) + "\n";
}

std::string losses_of(const FusionLlmOptions& options, const FusionLlmFindings& findings) {
  const LearningOptions& learning = options.learning;
  const LearntWith& dense = findings.learnt.front();
  std::string text = fmt::format(
      "## What compression costs in loss\n\nA residual network of {} operators, {} wide and normalised in "
      "front of each, learns handwritten "
      "digits ([digits.txt](digits.txt): "
      "1,797 images of 8 x 8 pixels, Alpaydin and Kaynak 1998, doi:10.24432/C50P49). OP-Fence cuts it for {} "
      "devices in {} sites, whose "
      "links are drawn as above, once without compression, and the rules differ in what travels over those "
      "cuts alone: each micro-batch of "
      "{} samples loses its small elements at every cut, forward and backward, as DeAR's codec has them, "
      "without error "
      "feedback. {} micro-batches make a step of SGD with momentum 0.9 and gradients clipped to norm 1, {} "
      "steps a training; "
      "of the learning rates {} the one with the least loss on other images counts. Losses and accuracies "
      "are of {} images that were "
      "not learnt, compressed as in training; mean and deviation over {}, each with links, parameters and "
      "images of its own.\n\n"
      "![Losses by ratio and by load](losses.svg)\n\n"
      "| compression | ratio | elements sent | load of the slowest link | learning rate | loss of the test | "
      "accuracy | loss, nothing "
      "compressed |\n|---|---|---|---|---|---|---|---|\n",
      learning.shape.operators(), learning.shape.width, learning.devices, learning.sites, learning.samples,
      learning.micro_batches, learning.steps, fmt::join(learning.learning_rates, ", "), learning.held_back,
      counted(static_cast<std::size_t>(learning.seeds), "seed"));
  for (const LearntWith& one : findings.learnt) {
    double squares = 0;
    for (const double loss : one.losses()) squares += (loss - one.mean_loss()) * (loss - one.mean_loss());
    const std::size_t seeds = one.by_seed.size();
    const double deviation = seeds > 1 ? std::sqrt(squares / static_cast<double>(seeds - 1)) : 0;
    text += fmt::format("| {} | {:g} | {} | {} | {:g} | {} | {} | {:.3f} |\n", name_of(one.rule), one.ratio,
                        percent(mean_of(one.elements) / mean_of(dense.elements)),
                        percent(mean_of(one.slowest_seconds) / mean_of(dense.slowest_seconds)),
                        one.learning_rate, training::mean_text(one.mean_loss(), deviation, seeds),
                        percent(one.mean_accuracy()), one.mean_whole_loss());
  }
  return text +
         "\nAt one ratio AdaTopK is the harsher rule where it matters: it takes twice the ratio on the "
         "slowest link, since an element travels "
         "with its index, and is mild on all others. So the picture also has the load of the slowest link, "
         "which is what an iteration waits "
         "for: with the same load uniform top-k has to take twice the ratio everywhere.\n\n"
         "The network is small, its tensors too: how much can be dropped from a model of millions of "
         "parameters may be another matter.\n";
}

}  // namespace

std::string report_of(const PublishedFusionLlm& published, const FusionLlmOptions& options,
                      const FusionLlmFindings& findings) {
  return kOpening + std::string("## What is said, and what we saw\n\n") +
         studies::table_of(statements_of(published, findings)) + "\n" + rules(published, options) +
         studies::findings_of(findings_in(published, findings)) +
         assumptions_of(published, options, findings) + bandwidths_of() +
         topologies_of(published, options, findings) + schedules_of(published, findings) +
         losses_of(options, findings);
}

}  // namespace dear::studies::fusionllm
