#include "studies/lancet/report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/units.h"
#include "dear/methods/moe/passes.h"
#include "dear/platform/cluster/presets.h"

namespace dear::studies::lancet {

using studies::percent;
namespace {

constexpr const char* kOpening = R"(# The study of Lancet

What was published of Lancet, which hides the all-to-alls of mixtures of experts under the whole graph of an iteration (Jiang et al.
2024, MLSys, arXiv 2404.19429), each statement beside what DeAR's own passes and two lanes of virtual time show. Written by
`dear study lancet`, in less than half a minute on one core; the same bytes every time. Nothing here was measured: operators take what a roofline of the device
says, all-to-alls what the links of `p3dn-64` (V100) and `p4de-64` (A100) say, both presets of `dear clusters`. A verdict is
computed, never typed: the rules stand below the table.

Five ways to train are compared. `unoptimised` runs the iteration as autograd does. `experts` hides all-to-alls under the experts alone, as Tutel and FasterMoE
do, with the best of 1, 2, 4 and 8 parts. `dw` moves weight gradients under the all-to-alls of the backward, `partition` cuts ranges of the forward into
parts of the batch, and `lancet` does both; these three also keep collectives of dense gradients out of the way of all-to-alls. The best baseline of the paper is the best of DeepSpeed, Tutel and RAF; here it is the
better of `unoptimised` and `experts`. All of this is in virtual time; [measurements](../../measurements.md#mixtures-of-experts) has steps of a small network that was trained.

)";

std::string rules(const PublishedLancet& published) {
  return fmt::format(
      "Gains agree within {:.2f}, parts of communication within {:.2f}. Without one pass an iteration loses "
      "about as much as without the other where they differ by {} of it at most; two iterations nearer than "
      "{} have no order. As tabled, figures are of all ranks, as the published ones; under all assumptions, "
      "the one as tabled too, of {} ranks. What holds under some assumptions and not under others is "
      "undecided, and so is a figure that is too low under one and too high under another. Published "
      "figures: {}. Only those that its text says stand here: bars of its pictures have no numbers.\n\n",
      kCloseGain, kCloseExposed, percent(kAlike), percent(kNoLess), published.ablation_ranks,
      published.source);
}

bool as_tabled(const Iteration& one) { return one.assumption == assumptions().front().name; }

std::string assumptions_of(const LancetOptions& options, const LancetFindings& findings) {
  std::string text =
      fmt::format(
          "## What nobody published\n\nThe precision, the batch of each GPU (text and configurations have "
          "those of the two models on the A100 the other way round), which layers have mixtures and how "
          "fast kernels are decide how much longer an all-to-all takes than the experts, and so all gains. "
          "Each assumption but the first changes one of them. All lines are of {} ranks and both models, "
          "and what is exposed is that with the gate switch.\n\n| assumption | cluster | ",
          options.iterations.sampled_ranks) +
      "all-to-all / experts | gain, largest | mean | batch-prioritized, largest | mean | "
      "exposed less than `experts` | than `unoptimised` | parts "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Assumption& assumption : assumptions())
    for (const std::string& cluster : options.iterations.clusters) {
      double largest[2] = {}, sum[2] = {}, least_ratio = 0, most_ratio = 0, experts = 0, none = 0;
      int count[2] = {}, parts = 1;
      for (const Iteration& one : findings.iterations) {
        if (one.assumption != assumption.name || one.cluster != cluster ||
            one.ranks != options.iterations.sampled_ranks)
          continue;
        const std::size_t gate = one.gate == Gate::in_order ? 0 : 1;
        const double ratio = one.all_to_all_seconds / one.expert_seconds;
        least_ratio = most_ratio == 0 ? ratio : std::min(least_ratio, ratio);
        most_ratio = std::max(most_ratio, ratio);
        largest[gate] = std::max(largest[gate], one.gain());
        sum[gate] += one.gain();
        ++count[gate];
        parts = std::max(parts, one.by("lancet").parts);
        if (gate == 1) continue;
        experts = std::max(experts, one.exposed_less("experts"));
        none = std::max(none, one.exposed_less("unoptimised"));
      }
      if (count[0] == 0 || count[1] == 0) continue;
      text +=
          fmt::format("| {} | `{}` | {:.2f} to {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {} | {} | {} |\n",
                      assumption.name, cluster, least_ratio, most_ratio, largest[0], sum[0] / count[0],
                      largest[1], sum[1] / count[1], percent(experts), percent(none), parts);
    }
  text += "\n";
  for (const Assumption& assumption : assumptions())
    text += fmt::format("- {}: {}.\n", assumption.name, assumption.says);
  return text +
         fmt::format(
             "\nThe picture makes all kernels faster and slower, on {} ranks and with the gate "
             "switch. Where kernels are slow, `experts` hides nearly all "
             "all-to-alls and little is left to gain; where they are fast, there is too little to "
             "hide all-to-alls under. "
             "What is gained most lies between. Cards that carry less than they nominally do are as faster "
             "kernels.\n\n![Gains by the pace of kernels](paces.svg)\n\n",
             options.iterations.sampled_ranks);
}

std::string iterations_table(const LancetFindings& findings) {
  std::string text =
      "## Iterations\n\nAs tabled: the first of the assumptions. Each cell is an iteration, and in brackets "
      "the communication that is exposed in it, dense gradients and parameters "
      "included.\n\n![Gains by ranks](gains.svg)\n\n| cluster | model | gate | ranks | batch | all-to-all / "
      "experts |";
  std::string rule = "\n|---|---|---|---|---|---|";
  for (const methods::moe::Passes& passes : methods::moe::all_passes()) {
    text += fmt::format(" {} |", passes.name);
    rule += "---|";
  }
  text += " gain | parts of `experts` | of `lancet` |" + rule + "---|---|---|\n";
  for (const Iteration& one : findings.iterations) {
    if (!as_tabled(one)) continue;
    text += fmt::format("| `{}` | `{}` | {} | {} | {} | {:.2f} |", one.cluster, one.model, name_of(one.gate),
                        one.ranks, one.batch, one.all_to_all_seconds / one.expert_seconds);
    for (const methods::moe::Passes& passes : methods::moe::all_passes())
      text += one.has(passes.name) ? fmt::format(" {} ({}) |", format_seconds(one.by(passes.name).seconds),
                                                 format_seconds(one.by(passes.name).exposed_seconds))
                                   : " |";
    text += fmt::format(" {:.2f} | {} | {} |\n", one.gain(), one.by("experts").parts, one.by("lancet").parts);
  }
  return text + "\n";
}

std::string ablation_of(const PublishedLancet& published, const LancetFindings& findings) {
  std::string text = fmt::format(
      "## Each pass alone\n\nOn {} ranks, as in the published ablation, with the gate switch: how many times "
      "as long as with both passes.\n\n"
      "![Iterations by passes](passes.svg)\n\n| assumption | cluster | model | unoptimised | experts | dw | "
      "partition |\n|---|---|---|---|---|---|---|\n",
      published.ablation_ranks);
  for (const Iteration& one : findings.iterations) {
    if (!one.has("partition") || one.ranks != published.ablation_ranks) continue;
    text += fmt::format("| {} | `{}` | `{}` |", one.assumption, one.cluster, one.model);
    for (const char* const pass : {"unoptimised", "experts", "dw", "partition"})
      text += fmt::format(" {:.3f} |", one.by(pass).seconds / one.by("lancet").seconds);
    text += "\n";
  }
  return text + "\n";
}

nlohmann::ordered_json json_of(const Iteration& one) {
  nlohmann::ordered_json passes;
  for (const PassTime& pass : one.passes)
    passes[pass.passes] = {{"seconds", pass.seconds},
                           {"compute_seconds", pass.compute_seconds},
                           {"exposed_seconds", pass.exposed_seconds},
                           {"parts", pass.parts}};
  return {{"cluster", one.cluster},
          {"model", one.model},
          {"gate", name_of(one.gate)},
          {"ranks", one.ranks},
          {"batch", one.batch},
          {"all_to_all_seconds", one.all_to_all_seconds},
          {"expert_seconds", one.expert_seconds},
          {"gain", one.gain()},
          {"passes", passes}};
}

}  // namespace

std::string to_json(const LancetFindings& findings) {
  nlohmann::ordered_json all;
  for (const Iteration& one : findings.iterations) {
    nlohmann::ordered_json object{{"assumption", one.assumption}};
    object.update(json_of(one));
    all["iterations"].push_back(std::move(object));
  }
  for (const Iteration& one : findings.by_pace) {
    nlohmann::ordered_json object{{"pace", one.assumption}};
    object.update(json_of(one));
    all["by_pace"].push_back(std::move(object));
  }
  all["best_fit"] = {{"graphs", findings.best_fit.graphs},
                     {"optimal", findings.best_fit.optimal},
                     {"mean", findings.best_fit.mean},
                     {"least", findings.best_fit.least}};
  return all.dump(2) + "\n";
}

std::string report_of(const PublishedLancet& published, const LancetOptions& options,
                      const LancetFindings& findings) {
  return std::string(kOpening) + "## What is said, and what we saw\n\n" +
         studies::table_of(statements_of(published, findings)) + "\n" + rules(published) +
         studies::findings_of(without_verdict(published, findings)) + assumptions_of(options, findings) +
         iterations_table(findings) + ablation_of(published, findings) +
         fmt::format(
             "## Best fit beside the best choice\n\n{} random networks of two to four layers, so small that "
             "every choice "
             "is looked at. Best fit hides {} of what the best choice hides on average and {} at least; on "
             "{} it is the best choice. "
             "In the worst case, which these networks are not, it hides a vanishing part.\n",
             findings.best_fit.graphs, percent(findings.best_fit.mean), percent(findings.best_fit.least),
             findings.best_fit.optimal);
}

}  // namespace dear::studies::lancet
