#include "studies/themis/report.h"
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace dear::studies::themis {

using studies::Cases;
using studies::percent;
using studies::Statement;
namespace {

const RandomOutcome* outcome_of(const ThemisFindings& findings, std::string_view algorithm) {
  for (const RandomOutcome& outcome : findings.random) {
    if (outcome.algorithm == algorithm) return &outcome;
  }
  return nullptr;
}

std::vector<Statement> of_utilisation(const PublishedThemis& published, const ThemisFindings& findings) {
  std::vector<Statement> all;
  for (const PublishedThemis::Utilisation& one : published.utilisation) {
    const double mean = over_networks(findings.uses, one.algorithm, &Use::utilisation).mean;
    Cases cases(fmt::format("An all-reduce by {} uses {} of all bandwidth (published mean)", one.algorithm,
                            percent(one.mean)));
    cases.add(std::abs(mean - one.mean) <= kCloseUtilisation, percent(mean));
    all.push_back(cases.finish());
  }
  for (const PublishedThemis::Gain& one : published.gains) {
    const OverNetworks gain = over_networks(findings.uses, one.algorithm, &Use::gain);
    Cases cases(fmt::format("{} is {:.2f} times as fast as the baseline{} (published)", one.algorithm,
                            one.mean,
                            one.largest > 0 ? fmt::format(", {:.2f} times at most", one.largest) : ""));
    cases.add(std::abs(gain.mean - one.mean) <= kCloseGain, fmt::format("{:.2f} times", gain.mean));
    if (one.largest > 0)
      cases.add(std::abs(gain.largest - one.largest) <= kCloseGain,
                fmt::format("{:.2f} at most", gain.largest));
    all.push_back(cases.finish());
  }
  return all;
}

Statement of_service(const ThemisFindings& findings) {
  Cases cases("Serving the smallest phase first is at least as fast as serving what is ready first");
  double fifo = 0;
  for (const Use& use : findings.uses) {
    if (use.algorithm == "themis-fifo") fifo = use.seconds;
    if (use.algorithm == "themis-scf")
      cases.add(use.seconds <= fifo * (1 + 1e-9), fmt::format("{:.2f} times as fast", fifo / use.seconds));
  }
  return cases.finish();
}

std::vector<Statement> of_the_guard(const ThemisFindings& findings) {
  std::vector<Statement> all;
  for (const char* const algorithm : {"themis-fifo", "themis-scf", "balanced", "themis"}) {
    const RandomOutcome* const outcome = outcome_of(findings, algorithm);
    if (!outcome) continue;
    Cases cases(fmt::format("{} is never slower than the baseline, on random networks", algorithm));
    cases.add(outcome->slower == 0,
              fmt::format("over 2 % slower on {} networks, {:.2f} times as fast at worst", outcome->slower,
                          outcome->worst));
    all.push_back(cases.finish());
  }
  return all;
}

ReachedAt where_published(const PublishedThemis::Iteration& one, const ThemisFindings& findings) {
  return where_gain_is(findings.iterations, one.model, "serial", "themis-scf", one.gain);
}

std::vector<Statement> of_iterations(const PublishedThemis& published, const ThemisOptions& options,
                                     const ThemisFindings& findings) {
  std::vector<Statement> all;
  Cases largest(
      "Where iterations gain as much as published on average, that of the best network is the one published");
  for (const PublishedThemis::Iteration& one : published.iterations) {
    const ReachedAt at = where_published(one, findings);
    if (at.ratio > 0)
      largest.add(
          std::abs(at.largest - one.largest) <= kCloseGain,
          fmt::format("{} {:.2f} times as fast, published {:.2f}", one.model, at.largest, one.largest));
  }
  all.push_back(largest.finish());
  Cases overlap(
      "DeAR's overlap leaves less to gain, wherever communication takes no longer than computation");
  for (const std::string& model : options.iterations.models) {
    double serial = 0;
    double dear = 0;
    for (const IterationGain& gain : findings.iterations) {
      if (gain.model != model || gain.algorithm != "themis" || gain.ratio <= 0 || gain.ratio > 1) continue;
      (gain.policy == "serial" ? serial : dear) =
          std::max(gain.policy == "serial" ? serial : dear, gain.gain);
    }
    if (serial > 0 && dear > 0)
      overlap.add(dear <= serial,
                  fmt::format("{} {:.2f} times as fast at most, {:.2f} without", model, dear, serial));
  }
  all.push_back(overlap.finish());
  return all;
}

}  // namespace

std::vector<std::string> without_verdict(const PublishedThemis& published, const ThemisFindings& findings) {
  std::vector<std::string> all;
  for (const PublishedThemis::Iteration& one : published.iterations) {
    const double ratio = where_published(one, findings).ratio;
    all.push_back(
        ratio > 0
            ? fmt::format(
                  "Iterations of {} get {:.2f} times as fast by themis-scf, as the published mean, without "
                  "overlap and where the baseline's communication takes {:.2f} times as long as "
                  "computation. The ratio of the paper is not known, and was swept.",
                  one.model, one.gain, ratio)
            : fmt::format("Iterations of {} get {:.2f} times as fast, the published mean, at no ratio of "
                          "communication to computation that was tried.",
                          one.model, one.gain));
  }
  return all;
}

std::vector<Statement> statements_of(const PublishedThemis& published, const ThemisOptions& options,
                                     const ThemisFindings& findings) {
  std::vector<Statement> all = of_utilisation(published, findings);
  all.push_back(of_service(findings));
  const auto join = [&](const std::vector<Statement>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  join(of_the_guard(findings));
  join(of_iterations(published, options, findings));
  Cases small("Chunks in orders of their own gain nothing where start-ups are all there is");
  for (const SizeOutcome& outcome : findings.sizes) {
    if (outcome.algorithm == "themis" && outcome.bytes == findings.sizes.front().bytes)
      small.add(std::abs(outcome.gain - 1) < kNearIdeal, fmt::format("{:.2f} times as fast", outcome.gain));
  }
  all.push_back(small.finish());
  return all;
}

}  // namespace dear::studies::themis
