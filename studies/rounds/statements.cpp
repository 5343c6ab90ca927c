#include "studies/rounds/report.h"
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace dear::studies::rounds {

using studies::Cases;
using studies::Statement;
namespace {

std::string factor_text(double factor) { return fmt::format("{:.3g}", factor); }

// Runs of one part, of an algorithm.
std::vector<const MinimumRun*> by(const MinimaFindings& findings, const char* part, const char* algorithm) {
  std::vector<const MinimumRun*> all;
  for (const MinimumRun* const one : findings.part(part))
    if (one->algorithm == algorithm) all.push_back(one);
  return all;
}

std::string in_dimensions(const MinimumRun& run) { return fmt::format("d = {}", run.problem.dimension); }

Statement of_gain(const MinimaFindings& findings, const std::string& says, const char* algorithm,
                  double at_least) {
  Cases cases(says);
  for (const MinimumRun* const one : by(findings, "large", algorithm)) {
    if (one->owners < 4 && one->owners != one->cohort) continue;  // beyond the best number
    const double fewer = fewer_than_descent(findings, *one);
    cases.add(fewer >= at_least,
              fmt::format("{}, {} owners: {} times", in_dimensions(*one), one->owners, factor_text(fewer)));
  }
  return cases.finish();
}

// The cheapest number of owners is the end of a fall and the begin of a rise.
std::size_t cheapest(const std::vector<const MinimumRun*>& runs, double alpha, bool& single) {
  std::vector<double> sent;
  for (const MinimumRun* const one : runs) sent.push_back(one->sent(alpha));
  const auto least = std::min_element(sent.begin(), sent.end());
  single = std::is_sorted(sent.begin(), least + 1, std::greater<>()) && std::is_sorted(least, sent.end()) &&
           least != sent.begin() && least + 1 != sent.end();
  return static_cast<std::size_t>(least - sent.begin());
}

std::vector<Statement> of_owners(const MinimaFindings& findings) {
  const std::vector<const MinimumRun*> runs = by(findings, "owners", "compressed-scaffnew");
  constexpr double kAlpha = 0.1;
  bool single = false, single_with_downlink = false;
  const std::size_t best = cheapest(runs, 0, single),
                    with_downlink = cheapest(runs, kAlpha, single_with_downlink);
  std::string seen;
  for (const MinimumRun* const one : runs)
    seen += fmt::format("{}{} owners {:.0f}", seen.empty() ? "" : ", ", one->owners, one->up);
  Cases minimum("There is one best number of owners between two and all: reals fall to it and rise from it");
  minimum.add(single, seen);
  Cases moved("Where a real that is sent down costs a tenth, the best number of owners is larger");
  moved.add(with_downlink > best,
            fmt::format("{} instead of {}", runs[with_downlink]->owners, runs[best]->owners));
  return {minimum.finish(), moved.finish()};
}

std::vector<Statement> of_conditions(const MinimaFindings& findings) {
  std::vector<Statement> all;
  for (const char* const algorithm : {"scaffnew", "compressed-scaffnew"}) {
    std::vector<std::pair<double, double>> rounds;
    std::string gains;
    double before = 0;
    bool grows = true;
    for (const MinimumRun* const one : by(findings, "condition", algorithm))
      rounds.emplace_back(one->problem.condition, one->rounds);
    std::vector<const MinimumRun*> runs = by(findings, "condition", algorithm);
    std::reverse(runs.begin(), runs.end());  // ascending
    for (const MinimumRun* const one : runs) {
      const double fewer = fewer_than_descent(findings, *one);
      grows = grows && fewer > before;
      before = fewer;
      gains += fmt::format("{}{:g}: {} times", gains.empty() ? "" : ", ", one->problem.condition,
                           factor_text(fewer));
    }
    Cases root(fmt::format("Rounds of `{}` grow at most as the square root of L / mu", algorithm));
    const double slope = log_log_slope(rounds);
    root.add(slope <= kRootSlope, fmt::format("as its power {:.2f}", slope));
    Cases gain(fmt::format("What `{}` saves over gradient descent grows with L / mu", algorithm));
    gain.add(grows, gains);
    all.push_back(root.finish());
    all.push_back(gain.finish());
  }
  return all;
}

std::vector<Statement> of_cohorts(const MinimaFindings& findings) {
  const std::vector<const MinimumRun*> runs = by(findings, "cohort", "tamuna");
  const MinimumRun& all = *runs.back();
  Cases rounds("Rounds of TAMUNA do not depend on how many clients take part");
  for (const MinimumRun* const one : runs)
    if (one != &all)
      rounds.add(std::abs(one->rounds / all.rounds - 1) <= kSameRounds,
                 fmt::format("{} of {}: {:.0f}, with all {:.0f}", one->cohort, one->problem.clients,
                             one->rounds, all.rounds));
  Cases reals("So a client that takes part sends the more, the fewer there are: as clients / cohort");
  for (const MinimumRun* const one : runs) {
    if (one == &all) continue;
    const double times = static_cast<double>(all.cohort) / one->cohort;
    reals.add(std::abs(one->up / all.up / times - 1) <= kSameRounds,
              fmt::format("{}: {} times what all send, {} times fewer than gradient descent", one->cohort,
                          factor_text(one->up / all.up), factor_text(fewer_than_descent(findings, *one))));
  }
  return {rounds.finish(), reals.finish()};
}

std::vector<Statement> of_rates(const MinimaFindings& findings) {
  Cases rate("The expected error shrinks at least as fast as tau, the rate that is proven");
  for (const RateRun& one : findings.rates)
    rate.add(one.seen >= kOfTheRate * one.promised,
             fmt::format("cohort {}, {} owners: {} of it", one.cohort, one.owners,
                         factor_text(one.seen / one.promised)));
  Cases beyond(
      "With control variates that learn 2.2 times as fast as is proven the run diverges, and not within the "
      "proof");
  for (const RateRun& one : findings.beyond)
    beyond.add(one.of_largest_chi > 1 ? one.seen < 0 : one.seen > 0,
               fmt::format("{:g} times chi: the error is multiplied by {:.2f} a round", one.of_largest_chi,
                           std::exp(-one.seen)));
  Cases cohort("A bound on chi that counts the cohort instead of all clients does not keep its rate");
  for (const RateRun& one : findings.of_a_cohort)
    cohort.add(one.seen < kOfTheRate * one.promised,
               fmt::format("p = {:g}: {} of it", one.probability, factor_text(one.seen / one.promised)));
  return {rate.finish(), beyond.finish(), cohort.finish()};
}

std::vector<Statement> of_exactness(const MinimaFindings& findings) {
  Cases exact("With control variates the exact minimum is reached, however much clients differ");
  Cases averages("Plain averages of local steps stall far from it");
  for (const MinimumRun* const one : findings.part("methods")) {
    const bool plain = one->algorithm == "local-sgd" || one->algorithm == "fedavg";
    if (one->algorithm == "gd") continue;
    Cases& cases = plain ? averages : exact;
    cases.add(plain ? one->end == End::stalled && one->error > kStalls : one->end == End::reached,
              fmt::format("`{}`: {:.1e}", one->algorithm, one->error));
  }
  Cases absent("Clients that drop out bias nothing: the exact minimum is reached with one in ten absent");
  for (const MinimumRun* const one : findings.part("absence"))
    if (one->algorithm != "gd")
      absent.add(one->end == End::reached,
                 fmt::format("`{}`: {:.1e} in {:.0f} rounds", one->algorithm, one->error, one->rounds));
  Cases sums("Control variates sum to zero at the end of every run");
  double largest = 0;
  for (const MinimumRun& one : findings.runs) {
    sums.add(one.control_sum <= kZeroSum);
    largest = std::max(largest, one.control_sum);
  }
  return {exact.finish(), averages.finish(), absent.finish(),
          sums.finish(fmt::format("at most {:.0e} in a coordinate", largest))};
}

// The steps of a round that are many.
std::vector<std::int64_t> long_periods(const AreasFindings& findings) {
  std::vector<std::int64_t> all;
  for (const AreaRun& one : findings.runs)
    if (one.every >= 32 && std::find(all.begin(), all.end(), one.every) == all.end())
      all.push_back(one.every);
  return all;
}

const char* name_of(Shards shards) { return shards == Shards::alike ? "dealt at random" : "sorted"; }

void add_equal_area(Cases& cases, const AreasFindings& findings, const char* algorithm, Shards shards) {
  const AreaRun& each = findings.run("coda", shards, 1, false);
  for (const std::int64_t every : long_periods(findings)) {
    const AreaRun& one = findings.run(algorithm, shards, every, false);
    const double difference = one.mean_area() - each.mean_area(), fewer = each.rounds / one.rounds;
    cases.add(std::abs(difference) <= kSameArea && fewer >= kOfThePeriod * static_cast<double>(every),
              fmt::format("{}, {:.3g} times fewer rounds: {:+.5f}", name_of(shards), fewer, difference));
  }
}

}  // namespace

double fewer_than_descent(const MinimaFindings& findings, const MinimumRun& run) {
  if (run.end != End::reached) return 0;
  for (const MinimumRun& one : findings.runs)
    if (one.algorithm == "gd" && one.absence == 0 &&
        one.part == (run.part == "cohort" ? "large" : run.part) &&
        one.problem.dimension == run.problem.dimension && one.problem.condition == run.problem.condition)
      return one.up / run.up;
  return 0;
}

double log_log_slope(const std::vector<std::pair<double, double>>& points) {
  double x_mean = 0, y_mean = 0, xy = 0, xx = 0;
  for (const auto& [x, y] : points) {
    x_mean += std::log(x) / static_cast<double>(points.size());
    y_mean += std::log(y) / static_cast<double>(points.size());
  }
  for (const auto& [x, y] : points) {
    xy += (std::log(x) - x_mean) * (std::log(y) - y_mean);
    xx += (std::log(x) - x_mean) * (std::log(x) - x_mean);
  }
  return xy / xx;
}

std::vector<Statement> statements_on_minima(const MinimaFindings& findings) {
  std::vector<Statement> all{
      of_gain(findings,
              fmt::format("Where L / mu is 10,000, local steps send {:g} times fewer reals than gradient "
                          "descent",
                          kLocalGain),
              "scaffnew", kLocalGain),
      of_gain(findings,
              fmt::format("Masks beside local steps make that {:g} times, with 4 or 10 owners", kBothGain),
              "compressed-scaffnew", kBothGain)};
  for (const auto part : {of_owners, of_conditions, of_cohorts, of_rates, of_exactness})
    for (Statement& one : part(findings)) all.push_back(std::move(one));
  return all;
}

std::vector<Statement> statements_on_areas(const AreasFindings& findings) {
  Cases optimum(fmt::format("Averaging in every step, CoDA finds the best AUC to {:g}", kSameArea));
  for (const Shards shards : {Shards::alike, Shards::sorted}) {
    const AreaRun& one = findings.run("coda", shards, 1, false);
    optimum.add(std::abs(one.mean_area() - one.mean_best()) <= kSameArea,
                fmt::format("{}: {:.5f} of {:.5f}", name_of(shards), one.mean_area(), one.mean_best()));
  }
  Cases coda("CoDA has that AUC with 30 to 120 times fewer rounds where samples are dealt at random");
  add_equal_area(coda, findings, "coda", Shards::alike);
  Cases codasca("CODASCA has it, however samples are dealt");
  for (const Shards shards : {Shards::alike, Shards::sorted})
    add_equal_area(codasca, findings, "codasca", shards);
  Cases drift("Where samples are sorted, CoDA drifts, the farther the more steps a round has");
  std::vector<std::int64_t> periods{1};
  for (const std::int64_t every : long_periods(findings)) periods.push_back(every);
  for (std::size_t i = 1; i < periods.size(); ++i) {
    const double distance = findings.run("coda", Shards::sorted, periods[i], true).mean_distance();
    drift.add(distance > 2 * findings.run("coda", Shards::sorted, periods[i - 1], true).mean_distance(),
              fmt::format("{} steps: {:.2g} of the weights", periods[i], distance));
  }
  Cases removed(
      fmt::format("CODASCA removes the drift: {} of it at most are left", studies::percent(kDriftLeft)));
  for (const std::int64_t every : long_periods(findings)) {
    const double left = findings.run("codasca", Shards::sorted, every, true).mean_distance(),
                 of = findings.run("coda", Shards::sorted, every, true).mean_distance();
    removed.add(left <= kDriftLeft * of, fmt::format("{} steps: {}", every, studies::percent(left / of)));
  }
  std::vector<std::pair<double, double>> noise;
  for (const NoiseRun& one : findings.noise) noise.emplace_back(one.clients, one.squared_distance);
  const double slope = log_log_slope(noise);
  Cases speed_up("Clients speed up linearly: noise that is left after as many steps falls as 1 / clients");
  speed_up.add(std::abs(slope + 1) <= kSpeedUpSlope, fmt::format("as their power {:.2f}", slope));
  return {optimum.finish(), coda.finish(),    codasca.finish(),
          drift.finish(),   removed.finish(), speed_up.finish()};
}

}  // namespace dear::studies::rounds
