#include "studies/sparse/sweeps.h"

#include "studies/training/paired.h"

#include <fmt/format.h>

namespace dear::studies::sparse {
namespace {

constexpr const char* kSwept[] = {"top-k", "random-k", "random-block"};
constexpr Optimiser kNesterov{.nesterov = true};
constexpr Optimiser kDecay{.decay = 0.001};

Setting setting(const std::string& scheme, const std::string& options, const Optimiser& optimiser = {}) {
  return {.method = compression_of(scheme, kRatios[0], ",ef" + options), .optimiser = optimiser};
}

Sweep momentum() {
  Sweep sweep{.title = "Momentum 0.9",
              .columns = {"after", "before", "before, with correction"},
              .rows = {},
              .statement = {}};
  for (const char* const scheme : kSwept)
    sweep.rows.push_back({scheme,
                          {setting(scheme, ""), setting(scheme, ",momentum=0.9"),
                           setting(scheme, ",momentum=0.9,correction")}});
  return sweep;
}

Sweep nesterov() {
  Sweep sweep{.title = "Nesterov's form of momentum",
              .columns = {"after", "after, Nesterov", "before", "before, Nesterov"},
              .rows = {{"dense", {{}, {.optimiser = kNesterov}}}},
              .statement = {}};
  for (const char* const scheme : kSwept)
    sweep.rows.push_back({scheme,
                          {setting(scheme, ""), setting(scheme, "", kNesterov),
                           setting(scheme, ",momentum=0.9"), setting(scheme, ",momentum=0.9,nesterov")}});
  return sweep;
}

Sweep decay() {
  Sweep sweep{.title = fmt::format("Weight decay {}, momentum after", kDecay.decay),
              .columns = {"none", "after", "before"},
              .rows = {{"dense", {{}, {.optimiser = kDecay}}}},
              .statement = {}};
  for (const char* const scheme : kSwept)
    sweep.rows.push_back({scheme,
                          {setting(scheme, ""), setting(scheme, "", kDecay),
                           setting(scheme, fmt::format(",decay={}", kDecay.decay))}});
  return sweep;
}

Sweep warm_up() {
  Sweep sweep{.title = "Warm-up of the ratio, from 1/4 in 200 steps, momentum after",
              .columns = {"none", "warm-up"},
              .rows = {},
              .statement = {}};
  for (const char* const scheme : kSwept)
    sweep.rows.push_back({scheme, {setting(scheme, ""), setting(scheme, ",warmup=200")}});
  return sweep;
}

const AccuracyAtRate& best_of(const Findings& findings, const Setting& setting) {
  return findings.accuracy_of(setting.method, setting.optimiser).at_best();
}

using Judge = studies::Judged (*)(const training::Paired& gain);
studies::Judged close(const training::Paired& gain) { return gain.within(kClose); }
studies::Judged better(const training::Paired& gain) { return gain.above(0); }

// Compares pairs of columns, in all rows that have both.
struct Comparison {
  std::size_t one, other;
};
studies::Statement compare(const Sweep& sweep, const Findings& findings, const char* says,
                           const std::vector<Comparison>& pairs, Judge judge) {
  studies::Cases cases(says);
  for (const Sweep::Row& row : sweep.rows) {
    for (const auto& [one, other] : pairs) {
      if (row.variants.size() <= std::max(one, other)) continue;
      const training::Paired gain = training::paired(best_of(findings, row.variants[one]).tests(),
                                                     best_of(findings, row.variants[other]).tests());
      cases.add(judge(gain), fmt::format("{} {}: {}", row.name, sweep.columns[other], gain.text()));
    }
  }
  return cases.finish();
}

}  // namespace

std::vector<Sweep> sweeps(const Findings& findings) {
  Sweep place = momentum(), corrected = momentum(), form = nesterov(), weights = decay(), ratio = warm_up();
  place.statement = compare(place, findings,
                            "Momentum on each worker, before the communication, learns as well as after it",
                            {{0, 1}}, close);
  corrected.title.clear();  // of the same table
  corrected.statement =
      compare(corrected, findings,
              "Momentum correction and masking make momentum before the communication learn better", {{1, 2}},
              better);
  form.statement =
      compare(form, findings, "Nesterov's form of momentum makes little difference", {{0, 1}, {2, 3}}, close);
  weights.statement = compare(
      weights, findings,
      "Whether weight decay acts before or after the communication makes little difference", {{1, 2}}, close);
  ratio.statement =
      compare(ratio, findings, "A warm-up of the ratio makes error feedback learn better", {{0, 1}}, better);
  return {place, corrected, form, weights, ratio};
}

std::string text_of(const Sweep& sweep, const Findings& findings) {
  std::string text;
  if (!sweep.title.empty()) {
    text = fmt::format("### {}\n\n| compression |", sweep.title);
    std::string rule = "\n|---|";
    for (const std::string& column : sweep.columns) {
      text += fmt::format(" {} |", column);
      rule += "---|";
    }
    text += rule + "\n";
    for (const Sweep::Row& row : sweep.rows) {
      text += fmt::format("| {} |", row.name);
      for (std::size_t column = 0; column < sweep.columns.size(); ++column) {
        if (column >= row.variants.size()) {
          text += " |";
          continue;
        }
        const AccuracyAtRate& best = best_of(findings, row.variants[column]);
        text += fmt::format(" {} at {} |",
                            training::mean_text(best.mean_test(), best.deviation(), best.by_seed.size()),
                            best.learning_rate);
      }
      text += "\n";
    }
    text += "\n";
  }
  return text + fmt::format("{}: {}.\n\n", sweep.statement.says, sweep.statement.verdict());
}

std::vector<Setting> settings_of_sweeps() {
  std::vector<Setting> settings;
  for (const Sweep& sweep : {momentum(), nesterov(), decay(), warm_up()})
    for (const Sweep::Row& row : sweep.rows)
      settings.insert(settings.end(), row.variants.begin(), row.variants.end());
  return settings;
}

bool is_of_sweeps_alone(const Setting& setting) {
  return setting.optimiser != Optimiser{} ||
         (setting.method && (setting.method->momentum > 0 || setting.method->weight_decay > 0 ||
                             setting.method->warm_up_steps > 0));
}

}  // namespace dear::studies::sparse
