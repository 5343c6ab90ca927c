#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/tools/cases/planned.h"

namespace dear::cases::testing {

// In what the parts of an answer contradict each other: sentences, none where the answer is sound.
inline std::vector<std::string> contradictions_in(const PlannedScenario& planned) {
  const plan::Answer& answer = planned.answer;
  std::vector<std::string> wrong;
  const auto require = [&](bool holds, std::string sentence) {
    if (!holds) wrong.push_back(std::move(sentence));
  };
  require(!answer.rows.empty() && answer.best < answer.rows.size(), "there is no row to use");
  if (!wrong.empty()) return wrong;
  const plan::Row& best = answer.rows[answer.best];
  bool any_fits = false, any_runs = false;
  for (const plan::Row& row : answer.rows) {
    any_fits = any_fits || row.fits;
    any_runs = any_runs || (row.fits && row.runs());
  }
  require(best.fits == any_fits, "what is to be used does not fit, and something does");
  require(!any_fits || best.runs() == any_runs, "what is to be used does not run, and something does");
  for (const plan::Row& row : answer.rows)
    require(!(row.fits && row.runs()) || best.seconds() <= row.seconds() * (1 + plan::kSame),
            fmt::format("{} runs and is faster", row.policy->name));
  std::string all;
  for (const std::string& sentence : answer.verdict) all += sentence + "\n";
  const auto says = [&](const char* text) { return all.find(text) != std::string::npos; };
  require(!answer.verdict.empty(), "nothing is said");
  require(says("Use ") == (best.fits && best.runs()),
          "it recommends what cannot be used, or nothing: " + all);
  require(
      !(best.policy->name.starts_with("dear") && best.fits && (says("DeAR is not") || says("DeAR does not"))),
      "it recommends DeAR and advises against it: " + all);
  require(!(says("No schedule") && says("Faster")), "something is faster than what nothing can be: " + all);
  require(best.fits || answer.sensitivities.empty(), "it says what would speed up what does not fit");
  for (const plan::Sensitivity& change : answer.sensitivities)
    require(change.fits == (planned.scenario->memory_bytes == 0 ||
                            change.memory_bytes <= planned.scenario->memory_bytes),
            change.change + " is beyond memory");
  if (answer.gain) {
    const plan::Gain& gain = *answer.gain;
    const double sum = gain.schedule + gain.sharding + gain.collectives + gain.fusion;
    require(std::abs(sum - gain.seconds) <= 1e-9 * best.seconds(),
            "the causes of the gain do not add up to it");
  }
  return wrong;
}

}  // namespace dear::cases::testing
