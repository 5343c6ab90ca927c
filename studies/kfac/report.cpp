#include "studies/kfac/kfac.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/charts/bar_chart.h"
#include "dear/base/vocabulary/units.h"
#include "dear/methods/kfac/modelled.h"

namespace dear::studies::kfac {
namespace {

using dear::methods::kfac::Costs;
using Model = PublishedKfac::Model;

constexpr const char* kOpening =
    R"(# The study of SPD-KFAC

What was published of K-FAC in data parallel with its communication hidden (Shi et al. 2021, arXiv 2107.06533), each statement
beside what DeAR's planner and simulator show. Written by `dear study kfac`. Nothing here was measured: iterations are graphs of steps
that are played in virtual time, on all ranks. A verdict is computed, never typed: the rules stand below the table.

)";

constexpr const char* kHorovod =
    R"(The published iterations ran on Horovod, and so do ours wherever they stand beside them: what becomes ready within one of its
cycles travels together, `threshold` is nothing else, and groups by the rule are fused so once more; inverses are sent when the
last of them is computed. Without these two properties the published orders do not come out: with groups that wait for
a buffer of 64 MiB to be full, `threshold` is faster than the rule, and inverses that are sent as soon as they are there
are hidden under the others.
)";

// A table of seconds: ours, and below it what was published, of each model.
std::string table(const std::vector<ModelFindings>& findings, const PublishedKfac& published,
                  std::vector<Outcome> Modelled::* group,
                  std::vector<double> (*of_model)(const Model& model)) {
  std::string text = "| model |", rule = "\n|---|";
  for (const Outcome& outcome : findings.front().calibrated.*group) {
    text += fmt::format(" {} |", outcome.name);
    rule += "---|";
  }
  text += rule;
  const auto row = [&](const std::string& what, const std::vector<Outcome>& outcomes) {
    text += fmt::format("\n| {} |", what);
    for (const Outcome& outcome : outcomes) text += fmt::format(" {:.3f} |", outcome.seconds);
  };
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const ModelFindings& found = findings[i];
    row(fmt::format("`{}`, calibrated, {}", found.model, found.fitted ? "fitted" : "predicted"),
        found.calibrated.*group);
    row(fmt::format("`{}`, the other half, {}", found.model, found.fitted ? "predicted" : "fitted"),
        found.swapped.*group);
    if (of_model == nullptr) continue;
    text += fmt::format("\n| `{}`, published |", found.model);
    const std::vector<double> seconds = of_model(published.models[i]);
    for (const double one : seconds) text += fmt::format(" {:.3f} |", one);
    for (std::size_t k = seconds.size(); k < (found.calibrated.*group).size(); ++k) text += " |";
  }
  return text + "\n\n";
}

std::string fed_table(const std::vector<ModelFindings>& findings, const PublishedKfac& published) {
  std::string text =
      "| model | strategy | passes, gradients | factors | factors sent | inverses | inverses sent | "
      "iteration | "
      "published | without its own exposure |\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Model& model = published.models[i];
    const std::vector<double> theirs{model.d, model.mpd, model.spd};
    for (std::size_t k = 0; k < theirs.size(); ++k) {
      const auto& [strategy, parts, seconds] = findings[i].fed[k];
      text += fmt::format(
          "| `{}` | {} | {:.3f} | {:.3f} | {:.3f} | {:.3f} | {:.3f} | {:.3f} | {:.3f} |{} |\n",
          findings[i].model, strategy, parts.passes + parts.gradients, parts.factors, parts.factors_sent,
          parts.inverses, parts.inverses_sent, seconds, theirs[k],
          strategy == "spd-kfac" ? fmt::format(" {:.3f}", findings[i].spd_seconds_without_its_own) : "");
    }
  }
  return text + "\n";
}

// The least and the largest part of an iteration of spd-kfac that is the phase of inverses: "25 to 37 %".
std::string predicted_share(const std::vector<ModelFindings>& findings) {
  double least = 1, most = 0;
  for (const ModelFindings& found : findings) {
    const Fed& spd = found.fed.back();
    const double share = (spd.parts.inverses + spd.parts.inverses_sent) / spd.seconds;
    least = std::min(least, share);
    most = std::max(most, share);
  }
  return fmt::format("{:.0f} to {:.0f} %", 100 * least, 100 * most);
}

std::string costs_row(const std::string& what, const Costs& costs) {
  const auto line = [](const dear::methods::kfac::LinearCost& cost) {
    return fmt::format("{} + {:.2f} ns an element", format_seconds(cost.start_seconds),
                       1e9 * cost.seconds_per_element);
  };
  return fmt::format("| {} | {} | {:.2f} | {} | {} |\n", what, line(costs.all_reduce),
                     costs.interference.computation, line(costs.broadcast), costs.invert.text());
}

std::string costs_table(const PublishedKfac& published, const Findings& findings) {
  Costs device = published_costs(published);
  std::string text =
      "| costs | all-reduce | computation beside it takes | broadcast | inverse |\n|---|---|---|---|---|\n";
  text += costs_row("as published", device);
  text += costs_row("calibrated with the second and the third model", findings.calibrated);
  text += costs_row("with the first and the fourth", findings.swapped);
  return text + fmt::format("\nDeAR's own model of an inverse on `{}`, from its data sheet alone: {}.\n\n",
                            published.device,
                            dear::methods::kfac::inverse_on(zoo::find_device(published.device)).text());
}

std::string orders_table(const PublishedKfac& published, const Findings& findings) {
  std::string text = "| pair | costs as published | calibrated | with the other half |\n|---|---|---|---|\n";
  int as_published = 0, calibrated = 0, swapped = 0, all = 0;
  const auto models = static_cast<int>(findings.models.size());
  for (const Order& order : orders_of(published, findings)) {
    text += fmt::format("| {} | {} of {} | {} of {} | {} of {} |\n", order.says, order.as_published, models,
                        order.calibrated, models, order.swapped, models);
    as_published += order.as_published;
    calibrated += order.calibrated;
    swapped += order.swapped;
    all += models;
  }
  return text + fmt::format("| all | {} of {} | {} of {} | {} of {} |\n\n", as_published, all, calibrated,
                            all, swapped, all);
}

std::string distances_table(const PublishedKfac& published, const Findings& findings) {
  std::string text = "| figure | median | largest |\n|---|---|---|\n";
  for (const Distance& distance : distances_of(published, findings))
    text += fmt::format("| {} | {:.1f} % | {:.1f} % |\n", distance.figure, 100 * distance.median,
                        100 * distance.largest);
  return text + "\n";
}

std::string placements_of(const std::vector<PlacementOutcome>& outcomes) {
  std::string text =
      "\n## Who inverts, on random jobs\n\nJobs of 2 to 25 layers with factors of 64 to 4096 on 2 to 64 "
      "ranks, costs "
      "that differ by hundreds of times: iterations of spd-kfac beside the faster of those with all inverses "
      "on every "
      "rank and with inverses dealt round robin. `balanced` is the rule of the paper: an inverse is sent if "
      "that is "
      "faster than to compute it, though broadcasts travel one after another. `planned` plays an iteration "
      "with that, "
      "with as many sent as make the inverses by themselves end first, with none and with all dealt, and "
      "takes the "
      "fastest. By themselves its inverses may end later, where other work hides them.\n\n| placement | jobs "
      "| "
      "slower iterations | at most | on average | inverses by themselves later | at most "
      "|\n|---|---|---|---|---|---|---|\n";
  for (const PlacementOutcome& one : outcomes)
    text += fmt::format("| {} | {} | {} | {:.3f} | {:.3f} | {} | {:.3f} |\n", one.placement, one.jobs,
                        one.slower, one.worst, one.mean, one.phase_slower, one.phase_worst);
  return text;
}

std::string report_of(const PublishedKfac& published, const Findings& findings, const FusionOutcome& fusion,
                      const std::vector<PlacementOutcome>& placements) {
  const std::vector<ModelFindings>& models = findings.models;
  std::string text = kOpening;
  text += "## What is said, and what we saw\n\n" +
          studies::table_of(statements_of(published, findings, fusion, placements));
  text += fmt::format(
      "\nNumbers without a unit are seconds, with calibrated costs (below). Ratios agree within {:.0f} %; "
      "two times that are "
      "nearer than {:.1f} % have no order. Published figures: {}.\n\n",
      100 * kCloseRatio, 100 * kTie, published.source);
  text += fmt::format(
      "## Iterations, given the published parts\n\nFrom the published figures the simulator gets the passes, "
      "factors and inverses of D-KFAC, the "
      "broadcasts of MPD-KFAC, and how long factors are exposed by the way in which they travel, which the "
      "start-up of "
      "an all-reduce and its interference are fitted to. Layers share the passes and the factors by the "
      "device's "
      "roofline. Of an iteration of D-KFAC nothing is predicted then, of MPD-KFAC's how inverses share the "
      "ranks. Of "
      "SPD-KFAC's it is the phase of inverses, {} of it, and how long its factors are exposed where that is "
      "not "
      "given: the last column has the start-up and the interference fitted to factors in bulk, one by one "
      "and by "
      "threshold alone. Computation that is slower since "
      "something travels "
      "stands with what was computed here, with what travels in the published bars.\n\n"
      "![Iterations](iterations.svg)\n\n",
      predicted_share(models));
  text += fed_table(models, published);
  text += fmt::format(
      "## From costs alone\n\nLayers as the zoo has them on {}, collectives of {} ranks, inverses by their "
      "dimensions. The published fits "
      "of costs were made of collectives and inverses by themselves, and give other orders than the "
      "published "
      "iterations: all collectives are hidden, and inverses of small matrices far too slow. So seven "
      "constants are fitted to figures of two of the four models (the second and the third): start and cube "
      "of an "
      "inverse, start and element of a broadcast, start and element of an all-reduce, and how much more "
      "slowly a rank computes beside it. The other two models are predicted, and so are balanced placement "
      "and "
      "whole iterations of all four. The halves swapped stand beside it: which of the two is called "
      "calibrated was "
      "chosen after both had been looked at.\n\n",
      published.device, published.ranks);
  text += costs_table(published, findings) + kHorovod;
  text += "\n### Orders\n\nIn how many models two variants have the published order:\n\n" +
          orders_table(published, findings);
  text +=
      "### Figures of the half that was not fitted\n\nHow far they are from the published ones, each model "
      "with the "
      "costs that were fitted without it:\n\n" +
      distances_table(published, findings);
  text +=
      "### Factors: how long sending them is not hidden\n\nSeconds. `exact` has groups that nothing fuses "
      "once more.\n\n![Factors](factors.svg)\n\n";
  text += table(models, published, &Modelled::factors_sent, [](const Model& m) {
    return std::vector<double>{m.factors_sent.bulk, m.factors_sent.alone, m.factors_sent.threshold,
                               m.factors_sent.rule};
  });
  text += "### Inverses, computed and sent\n\nSeconds.\n\n![Inverses](inverses.svg)\n\n";
  text += table(models, published, &Modelled::inverses, [](const Model& m) {
    return std::vector<double>{m.inverses.local, m.inverses.round_robin, m.inverses.balanced};
  });
  text += "### Iterations, step by step\n\nSeconds.\n\n";
  text += table(models, published, &Modelled::steps, [](const Model& m) {
    return std::vector<double>{m.steps.none, m.steps.pipelining, m.steps.balance, m.steps.both};
  });
  text +=
      "### What DeAR would make of it\n\nSeconds of an iteration, where nothing fuses groups once more and "
      "an inverse is sent as soon as it is "
      "there. With `-owner` a factor goes only to the rank that inverts it, at half the cost of an "
      "all-reduce. Exact fusion "
      "finds the groups that end first, and of these the fewest.\n\n" +
      table(models, published, &Modelled::strategies, nullptr);
  text +=
      "## Sizes\n\n| model | factors | elements of their triangles | elements of gradients "
      "|\n|---|---|---|---|\n";
  for (const ModelFindings& found : models)
    text += fmt::format("| `{}` | {} | {:.2f} M | {:.2f} M |\n", found.model, found.factors,
                        static_cast<double>(found.factor_elements) / 1e6,
                        static_cast<double>(found.gradient_elements) / 1e6);
  text += fmt::format(
      "\n## How good the rule of fusion is\n\nOn {} random sets of 2 to 61 layers the rule finds the best "
      "groups in {}, is within 5 % in {}, takes "
      "{:.3f} times as long on average and {:.2f} times at worst. Exact fusion finds them always.\n",
      fusion.cases, fusion.optimal, fusion.within_5, fusion.mean, fusion.worst);
  return text + placements_of(placements);
}

std::string iterations_chart(const PublishedKfac& published, const std::vector<ModelFindings>& findings) {
  std::vector<charts::BarPanel> panels;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Model& model = published.models[i];
    charts::BarPanel panel{.title = model.model, .bars = {}};
    const std::vector<double> marks{model.d, model.mpd, model.spd};
    for (std::size_t k = 0; k < marks.size(); ++k) {
      const auto& [strategy, parts, seconds] = findings[i].fed[k];
      const double waiting = parts.gradients + parts.factors_sent + parts.inverses_sent;
      panel.bars.push_back(
          {.label = strategy, .first = seconds - waiting, .second = waiting, .mark = marks[k]});
    }
    panels.push_back(std::move(panel));
  }
  return charts::bar_chart(panels, {.title = "An iteration with K-FAC, given the published parts",
                                    .first = "simulated: computing",
                                    .second = "waiting for what travels",
                                    .mark = "published",
                                    .format = format_seconds});
}

std::string chart_of(const PublishedKfac& published, const std::vector<ModelFindings>& findings,
                     const std::string& title, std::vector<Outcome> Modelled::* group,
                     std::vector<double> (*of_model)(const Model& model)) {
  std::vector<charts::BarPanel> panels;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const std::vector<double> marks = of_model(published.models[i]);
    charts::BarPanel panel{.title = findings[i].model + (findings[i].fitted ? ", fitted" : ", predicted"),
                           .bars = {}};
    const std::vector<Outcome>& outcomes = findings[i].calibrated.*group;
    for (std::size_t k = 0; k < outcomes.size(); ++k)
      panel.bars.push_back(
          {.label = outcomes[k].name, .first = outcomes[k].seconds, .mark = k < marks.size() ? marks[k] : 0});
    panels.push_back(std::move(panel));
  }
  return charts::bar_chart(
      panels,
      {.title = title, .first = "simulated", .second = "", .mark = "published", .format = format_seconds});
}

nlohmann::ordered_json json_of(const std::vector<Outcome>& outcomes) {
  nlohmann::ordered_json object;
  for (const Outcome& outcome : outcomes) object[outcome.name] = outcome.seconds;
  return object;
}

nlohmann::ordered_json json_of(const Modelled& modelled) {
  return {{"factors_sent_seconds", json_of(modelled.factors_sent)},
          {"inverses_seconds", json_of(modelled.inverses)},
          {"steps_seconds", json_of(modelled.steps)},
          {"strategies_seconds", json_of(modelled.strategies)}};
}

std::string to_json(const Findings& findings, const FusionOutcome& fusion,
                    const std::vector<PlacementOutcome>& placements) {
  nlohmann::ordered_json all;
  for (const ModelFindings& found : findings.models) {
    nlohmann::ordered_json fed;
    for (const auto& [strategy, parts, seconds] : found.fed) fed[strategy] = seconds;
    all["models"].push_back({{"model", found.model},
                             {"fitted", found.fitted},
                             {"factors", found.factors},
                             {"factor_elements", found.factor_elements},
                             {"gradient_elements", found.gradient_elements},
                             {"given_parts_seconds", fed},
                             {"spd_seconds_without_its_own_exposure", found.spd_seconds_without_its_own},
                             {"costs_as_published", json_of(found.as_published)},
                             {"calibrated", json_of(found.calibrated)},
                             {"calibrated_with_the_other_half", json_of(found.swapped)}});
  }
  all["fusion_on_random_layers"] = {{"cases", fusion.cases},
                                    {"optimal", fusion.optimal},
                                    {"within_5_percent", fusion.within_5},
                                    {"mean", fusion.mean},
                                    {"worst", fusion.worst}};
  for (const PlacementOutcome& one : placements)
    all["placement_on_random_jobs"].push_back({{"placement", one.placement},
                                               {"jobs", one.jobs},
                                               {"slower", one.slower},
                                               {"worst", one.worst},
                                               {"mean", one.mean},
                                               {"inverses_slower", one.phase_slower},
                                               {"inverses_worst", one.phase_worst}});
  return all.dump(2) + "\n";
}

}  // namespace

std::vector<studies::StudyFile> study_of_kfac(const PublishedKfac& published,
                                              const studies::Progress& progress) {
  return study_of_kfac(published, simulate_models(published, progress));
}

std::vector<studies::StudyFile> study_of_kfac(const PublishedKfac& published, const Findings& findings) {
  const FusionOutcome fusion = fusion_on_random_layers(1000);
  const std::vector<PlacementOutcome> placements = placement_on_random_jobs(1000);
  return {{"README.md", report_of(published, findings, fusion, placements)},
          {"results.json", to_json(findings, fusion, placements)},
          {"iterations.svg", iterations_chart(published, findings.models)},
          {"factors.svg", chart_of(published, findings.models,
                                   "How long the sending of factors is not hidden", &Modelled::factors_sent,
                                   [](const Model& m) {
                                     return std::vector<double>{m.factors_sent.bulk, m.factors_sent.alone,
                                                                m.factors_sent.threshold,
                                                                m.factors_sent.rule};
                                   })},
          {"inverses.svg", chart_of(published, findings.models, "Inverses, computed and sent",
                                    &Modelled::inverses, [](const Model& m) {
                                      return std::vector<double>{m.inverses.local, m.inverses.round_robin,
                                                                 m.inverses.balanced};
                                    })}};
}

}  // namespace dear::studies::kfac
