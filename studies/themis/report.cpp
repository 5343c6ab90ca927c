#include "studies/themis/report.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/units.h"
#include "dear/platform/cost/chunk_planner.h"

namespace dear::studies::themis {

using studies::percent;
namespace {

constexpr const char* kOpening = R"(# The study of Themis

What was published of Themis (Rashidi et al. 2022, doi:10.1145/3470496.3527382, arXiv 2110.04478), each statement beside what
DeAR's own planner and simulator show. Written by `dear study themis`. Nothing here was measured on a network: dimensions carry one phase of
one chunk at a time. The sizes and bandwidths of the six networks are as remembered, not as read. A verdict is computed,
never typed: the rules stand below the table. `themis` is DeAR's: the fastest of all algorithms named here, in as many chunks or fewer.

)";

std::string rules(const PublishedThemis& published) {
  return fmt::format(
      "Utilisations agree within {} of all bandwidth, gains within {:.1f}. A plan is slower than the "
      "baseline where it takes over "
      "{:.0f} % longer. Published figures: {}.\n\n",
      percent(kCloseUtilisation), kCloseGain, 100 * (kSlower - 1), published.source);
}

std::string uses_of(const PublishedThemis& published, const ThemisOptions& options,
                    const ThemisFindings& findings) {
  std::string text = fmt::format(
      "## How much of the bandwidth an all-reduce uses\n\nAn all-reduce of {} in {} chunks, over the "
      "baseline in brackets. Start-ups take no "
      "time here.\n\n![What each dimension carries](use.svg)\n\n| network |",
      format_bytes(options.utilisation.bytes), options.utilisation.chunks);
  std::string rule = "\n|---|";
  for (const cost::ChunkPlanner& planner : cost::chunk_planners()) {
    text += fmt::format(" {} |", planner.name);
    rule += "---|";
  }
  text += rule;
  std::string row;
  for (const Use& use : findings.uses) {
    if (use.cluster != row) {
      text += fmt::format("\n| `{}` |", use.cluster);
      row = use.cluster;
    }
    text += use.algorithm == "baseline" ? fmt::format(" {} |", percent(use.utilisation))
                                        : fmt::format(" {} ({:.2f}) |", percent(use.utilisation), use.gain);
  }
  text += "\n| mean |";
  for (const cost::ChunkPlanner& planner : cost::chunk_planners()) {
    const std::string name(planner.name);
    const double mean = over_networks(findings.uses, name, &Use::utilisation).mean;
    text += name == "baseline" ? fmt::format(" {} |", percent(mean))
                               : fmt::format(" {} ({:.2f}) |", percent(mean),
                                             over_networks(findings.uses, name, &Use::gain).mean);
  }
  text += "\n| published mean |";
  for (const cost::ChunkPlanner& planner : cost::chunk_planners()) {
    const auto found = std::find_if(published.utilisation.begin(), published.utilisation.end(),
                                    [&](const auto& one) { return one.algorithm == planner.name; });
    const auto gain = std::find_if(published.gains.begin(), published.gains.end(),
                                   [&](const auto& one) { return one.algorithm == planner.name; });
    text += found == published.utilisation.end() ? " |"
            : gain == published.gains.end()      ? fmt::format(" {} |", percent(found->mean))
                                            : fmt::format(" {} ({:.2f}) |", percent(found->mean), gain->mean);
  }
  return text + "\n\n";
}

std::string iterations_of(const ThemisOptions& options, const ThemisFindings& findings) {
  std::string text = fmt::format(
      "## Iterations\n\nModels as the simulator builds them for {} in {}, each with its own batch, on the "
      "six networks: what is gained over the "
      "baseline, as geometric means. Communication is in turns with computation under `serial`, and hidden "
      "as far as "
      "may be under `dear`. The embedding tables of `dlrm` lie with the ranks that own them, and no rank "
      "holds all of `gpt-1t`: its times are "
      "those of an all-reduce of its gradients all the same.\n\n| model | policy | iteration, baseline | "
      "nothing "
      "computed, baseline |",
      options.iterations.device, options.iterations.dtype);
  std::string rule = "\n|---|---|---|---|";
  for (const std::string& algorithm : options.iterations.algorithms) {
    text += fmt::format(" {} | at most |", algorithm);
    rule += "---|---|";
  }
  text += rule;
  std::string row;
  for (const IterationGain& gain : findings.iterations) {
    if (gain.ratio > 0) continue;
    if (gain.model + gain.policy != row) {
      text += fmt::format("\n| `{}` | `{}` | {} | {} |", gain.model, gain.policy,
                          format_seconds(gain.seconds_of_baseline), percent(gain.exposed_part_of_baseline));
      row = gain.model + gain.policy;
    }
    text += fmt::format(" {:.3f} | {:.3f} |", gain.gain, gain.largest);
  }
  return text +
         "\n\nWhat the paper's accelerators computed in is not known. The picture makes their forward and "
         "backward faster and slower: across stands how many "
         "times as long the baseline's communication takes. Where it takes less than computation, DeAR hides "
         "most of it, "
         "and there is little left to gain; where it takes much more, nothing hides it, and what is gained "
         "in communication is gained "
         "in the iteration.\n\n![Gains of iterations](iterations.svg)\n\n";
}

std::string limits_of(const ThemisOptions& options, const ThemisFindings& findings) {
  std::string text = fmt::format(
      "## Where it does not pay\n\n### Random networks\n\n{} networks of two to four dimensions of 2 to 16 "
      "members, bandwidths up to 32 times "
      "apart, 4 to 64 chunks of {}. The published algorithm puts whole chunks on a slow dimension, which few "
      "chunks "
      "cannot make up for. `themis` plays all candidates and takes the fastest.\n\n| algorithm | gain, mean "
      "| gain, least | "
      "slower than the baseline | bandwidth used |\n|---|---|---|---|---|\n",
      options.random.networks, format_bytes(options.random.bytes));
  for (const RandomOutcome& outcome : findings.random)
    text += fmt::format("| {} | {:.2f} | {:.2f} | {} | {} |\n", outcome.algorithm, outcome.gain,
                        outcome.worst, percent(static_cast<double>(outcome.slower) / options.random.networks),
                        percent(outcome.utilisation));
  text += fmt::format(
      "\n### Beside the optimum\n\nAll orders and all orders of service were searched on {} networks of two "
      "dimensions of 2 to 4 "
      "members, bandwidths up to 8 times apart, as far as it took no longer than {} steps: how many times as "
      "long an algorithm takes. `themis` may use fewer "
      "chunks, so it can be faster than the best plan of all of them only where start-ups count, and here "
      "none do.\n\n| algorithm | "
      "chunks | networks | mean | most | optimal |\n|---|---|---|---|---|---|\n",
      options.optimum.networks, options.optimum.most_steps);
  for (const OptimumOutcome& outcome : findings.optimum)
    text += fmt::format("| {} | {} | {} | {:.3f} | {:.3f} | {} |\n", outcome.algorithm, outcome.chunks,
                        outcome.networks, outcome.longer, outcome.most_longer,
                        percent(static_cast<double>(outcome.reached) / std::max(outcome.networks, 1)));
  text += fmt::format(
      "\n### Small vectors\n\nThe six networks, with start-ups of a message as NCCL reckons with: {} in the "
      "innermost dimension, {} "
      "in the others. What is gained over the baseline in as many chunks as suit it best, up to {}. In small "
      "vectors start-ups are all there "
      "is, and every chunk costs more of them; `themis` goes in fewer.\n\n![Gains by size](sizes.svg)\n\n",
      format_seconds(options.sizes.start_up_inside), format_seconds(options.sizes.start_up_outside),
      options.sizes.chunks);
  text +=
      "### Clusters of today\n\nThe presets of `dear clusters` with several dimensions. Inside their nodes a "
      "rank has at least as many times the bandwidth as the node has ranks, so the order of the hierarchy is "
      "the "
      "right one for every chunk, and what is gained is gained by chunks alone. Where "
      "dimensions share links, as a spine and its rail, or the card of a node, no order helps.\n\n| cluster "
      "| vector | "
      "in one chunk | best baseline | `themis` | over one chunk | over the best baseline | bandwidth used | "
      "plan "
      "|\n|---|---|---|---|---|---|---|---|---|\n";
  for (const PresetOutcome& outcome : findings.presets)
    text += fmt::format("| `{}` | {} | {} | {} | {} | {:.2f} | {:.2f} | {} | {}, {} {} |\n", outcome.cluster,
                        format_bytes(outcome.bytes), format_seconds(outcome.one_chunk_seconds),
                        format_seconds(outcome.baseline_seconds), format_seconds(outcome.seconds),
                        outcome.one_chunk_seconds / outcome.seconds,
                        outcome.baseline_seconds / outcome.seconds, percent(outcome.utilisation),
                        outcome.plan, outcome.chunks, outcome.chunks == 1 ? "chunk" : "chunks");
  return text;
}

}  // namespace

std::string report_of(const PublishedThemis& published, const ThemisOptions& options,
                      const ThemisFindings& findings) {
  return std::string(kOpening) + "## What is said, and what we saw\n\n" +
         studies::table_of(statements_of(published, options, findings)) + "\n" + rules(published) +
         studies::findings_of(without_verdict(published, findings)) + uses_of(published, options, findings) +
         iterations_of(options, findings) + limits_of(options, findings);
}

}  // namespace dear::studies::themis
