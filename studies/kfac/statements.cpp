#include "studies/kfac/kfac.h"
#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace dear::studies::kfac {
namespace {

using studies::Cases;
using studies::Statement;
using Model = PublishedKfac::Model;

// One figure of the paper: what it published of a model, and where ours stands.
struct Figure {
  const char* name;  // of the outcome
  double (*published)(const Model& model);
  std::vector<Outcome> Modelled::* group;
  [[nodiscard]] double modelled(const Modelled& costs) const { return seconds_of(costs.*group, name); }
};

const std::vector<Figure>& figures() {
  static const std::vector<Figure> table{
      {"bulk", [](const Model& m) { return m.factors_sent.bulk; }, &Modelled::factors_sent},
      {"alone", [](const Model& m) { return m.factors_sent.alone; }, &Modelled::factors_sent},
      {"threshold", [](const Model& m) { return m.factors_sent.threshold; }, &Modelled::factors_sent},
      {"rule", [](const Model& m) { return m.factors_sent.rule; }, &Modelled::factors_sent},
      {"local", [](const Model& m) { return m.inverses.local; }, &Modelled::inverses},
      {"round-robin", [](const Model& m) { return m.inverses.round_robin; }, &Modelled::inverses},
      {"balanced", [](const Model& m) { return m.inverses.balanced; }, &Modelled::inverses},
      {"none", [](const Model& m) { return m.steps.none; }, &Modelled::steps},
      {"pipelining", [](const Model& m) { return m.steps.pipelining; }, &Modelled::steps},
      {"balance", [](const Model& m) { return m.steps.balance; }, &Modelled::steps},
      {"both", [](const Model& m) { return m.steps.both; }, &Modelled::steps}};
  return table;
}

// Two variants of one sub-figure, in that order of the table above.
struct Pair {
  std::size_t one, other;
};
const std::vector<Pair>& pairs() {
  static const std::vector<Pair> table{{0, 1}, {0, 2}, {1, 2}, {2, 3},  {4, 5}, {4, 6},
                                       {5, 6}, {7, 8}, {7, 9}, {8, 10}, {9, 10}};
  return table;
}

int sign_of(double one, double other) {
  if (std::abs(one - other) <= kTie * std::max(one, other)) return 0;
  return one < other ? -1 : 1;
}

// Ours has the order of the published figures.
bool same_order(const Pair& pair, const Model& model, const Modelled& ours) {
  const Figure &one = figures()[pair.one], &other = figures()[pair.other];
  return sign_of(one.modelled(ours), other.modelled(ours)) ==
         sign_of(one.published(model), other.published(model));
}

constexpr const char* kGivenItsOwn =
    "given the parts of D-KFAC, the broadcasts of MPD-KFAC, and how long factors are exposed, SPD-KFAC's own "
    "too";
constexpr const char* kWithoutItsOwn = "given the same without any figure of SPD-KFAC itself";

std::string_view half_of(const ModelFindings& found) { return found.fitted ? "fitted" : "predicted"; }

// The orders of one sub-figure, a case for each model that has all of them.
Statement orders(const std::string& says, const PublishedKfac& published, const Findings& findings,
                 std::initializer_list<std::size_t> which) {
  Cases cases(says);
  for (std::size_t i = 0; i < findings.models.size(); ++i) {
    const ModelFindings& found = findings.models[i];
    bool all = true;
    std::string seen;
    for (const std::size_t pair : which)
      all &= same_order(pairs()[pair], published.models[i], found.calibrated);
    std::vector<std::size_t> shown;
    for (const std::size_t pair : which)
      for (const std::size_t figure : {pairs()[pair].one, pairs()[pair].other})
        if (std::find(shown.begin(), shown.end(), figure) == shown.end()) shown.push_back(figure);
    std::sort(shown.begin(), shown.end());
    for (const std::size_t figure : shown)
      seen += fmt::format("{} {} {:.3f}", seen.empty() ? "" : ",", figures()[figure].name,
                          figures()[figure].modelled(found.calibrated));
    cases.add(all, fmt::format("{} ({}){}", found.model, half_of(found), seen));
  }
  return cases.finish();
}

// The ratio of two published iterations beside that of ours, of which `spd` says how long SPD-KFAC's takes.
Statement ratio(const std::string& says, const PublishedKfac& published, const Findings& findings,
                std::size_t strategy, double Model::* seconds, double (*spd)(const ModelFindings& found)) {
  Cases cases(says);
  for (std::size_t i = 0; i < findings.models.size(); ++i) {
    const Model& model = published.models[i];
    const ModelFindings& found = findings.models[i];
    const double theirs = model.*seconds / model.spd;
    const double ours = found.fed[strategy].seconds / spd(found);
    cases.add(std::abs(ours / theirs - 1) <= kCloseRatio,
              fmt::format("{} {:.2f}, published {:.2f}", model.model, ours, theirs));
  }
  return cases.finish();
}

// `name` is no slower than `other`, with calibrated costs.
Statement no_slower(const std::string& says, const Findings& findings, std::vector<Outcome> Modelled::* group,
                    const char* name, const char* other) {
  Cases cases(says);
  for (const ModelFindings& found : findings.models) {
    const double one = seconds_of(found.calibrated.*group, name);
    const double two = seconds_of(found.calibrated.*group, other);
    cases.add(one <= two * (1 + kTie), fmt::format("{} {:.3f} s and {:.3f} s", found.model, one, two));
  }
  return cases.finish();
}

}  // namespace

std::vector<Order> orders_of(const PublishedKfac& published, const Findings& findings) {
  std::vector<Order> all;
  for (const Pair& pair : pairs()) {
    Order order{.says = fmt::format("{}, {}", figures()[pair.one].name, figures()[pair.other].name)};
    for (std::size_t i = 0; i < findings.models.size(); ++i) {
      const ModelFindings& found = findings.models[i];
      order.as_published += same_order(pair, published.models[i], found.as_published) ? 1 : 0;
      order.calibrated += same_order(pair, published.models[i], found.calibrated) ? 1 : 0;
      order.swapped += same_order(pair, published.models[i], found.swapped) ? 1 : 0;
    }
    all.push_back(order);
  }
  return all;
}

std::vector<Distance> distances_of(const PublishedKfac& published, const Findings& findings) {
  std::vector<Distance> all;
  for (const Figure& figure : figures()) {
    std::vector<double> errors;
    for (std::size_t i = 0; i < findings.models.size(); ++i) {
      const ModelFindings& found = findings.models[i];
      const Modelled& ours = found.fitted ? found.swapped : found.calibrated;
      errors.push_back(std::abs(figure.modelled(ours) / figure.published(published.models[i]) - 1));
    }
    std::sort(errors.begin(), errors.end());
    const std::size_t middle = errors.size() / 2;
    const double median = errors.size() % 2 == 1 ? errors[middle] : (errors[middle - 1] + errors[middle]) / 2;
    all.push_back({figure.name, median, errors.back()});
  }
  return all;
}

std::vector<Statement> statements_of(const PublishedKfac& published, const Findings& findings,
                                     const FusionOutcome& fusion,
                                     const std::vector<PlacementOutcome>& placements) {
  std::vector<Statement> statements;
  const auto given_its_own = [](const ModelFindings& found) { return found.fed.back().seconds; };
  const auto without = [](const ModelFindings& found) { return found.spd_seconds_without_its_own; };
  for (const auto& [given, spd] :
       {std::pair{kGivenItsOwn, +given_its_own}, std::pair{kWithoutItsOwn, +without}}) {
    statements.push_back(
        ratio(fmt::format("SPD-KFAC is so many times as fast as D-KFAC (published), {}", given), published,
              findings, 0, &Model::d, spd));
    statements.push_back(
        ratio(fmt::format("SPD-KFAC is so many times as fast as MPD-KFAC (published), {}", given), published,
              findings, 1, &Model::mpd, spd));
  }
  statements.push_back(
      orders("Sent one by one, factors are exposed longer than in bulk after the backward (published)",
             published, findings, {0}));
  statements.push_back(orders(
      "In groups by threshold they are exposed more shortly than in bulk, and by the rule more shortly still "
      "(published)",
      published, findings, {1, 2, 3}));
  statements.push_back(orders(
      "Inverses dealt round robin take longer than all on every rank on DenseNet-201, and less on the others "
      "(published)",
      published, findings, {4}));
  statements.push_back(
      orders("Balanced inverses take less than all on every rank, and than dealt ones (published)", published,
             findings, {5, 6}));
  statements.push_back(
      orders("Pipelining alone and balance alone make an iteration faster, and both still faster "
             "(published)",
             published, findings, {7, 8, 9, 10}));
  statements.push_back(no_slower(
      "Exact fusion makes an iteration of SPD-KFAC no slower than the rule, where nothing fuses once more",
      findings, &Modelled::strategies, "spd-kfac, exact fusion", "spd-kfac"));
  statements.push_back(no_slower("SPD-KFAC is no slower where a factor is reduced only to who inverts it",
                                 findings, &Modelled::strategies, "spd-kfac-owner", "spd-kfac"));
  statements.push_back(no_slower("MPD-KFAC is no slower where a factor is reduced only to who inverts it",
                                 findings, &Modelled::strategies, "mpd-kfac-owner", "mpd-kfac"));
  Cases optimal("The rule of fusion is optimal, as its name says");
  optimal.add(fusion.optimal == fusion.cases,
              fmt::format("on {} of {} random layer sets; {:.2f} times as long on average, {:.2f} at worst",
                          fusion.optimal, fusion.cases, fusion.mean, fusion.worst));
  statements.push_back(optimal.finish());
  for (const PlacementOutcome& outcome : placements) {
    Cases never(fmt::format(
        "Placement {} makes no iteration slower than all inverses on every rank, or dealt round robin",
        outcome.placement));
    never.add(outcome.slower == 0,
              fmt::format("in {} of {} random jobs, {:.2f} times as long at most; {:.2f} times on average",
                          outcome.slower, outcome.jobs, outcome.worst, outcome.mean));
    statements.push_back(never.finish());
  }
  return statements;
}

}  // namespace dear::studies::kfac
