#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dear/methods/rounds/times.h"
#include "dear/predict/plan/plan.h"
#include "dear/tools/cases/cases.h"

namespace dear::cases {

// Rounds of some steps, in the two ways to average, beside a policy that communicates in every step.
struct RoundsCase {
  const Case* beside = nullptr;  // the fastest of the scenario that sends whole gradients
  methods::rounds::RoundJob job;
  std::int64_t steps = 1;
  methods::rounds::RoundTimes waits, overlaps;

  [[nodiscard]] double speed_up(const methods::rounds::RoundTimes& times) const {
    return beside->evaluation.iteration.seconds / times.seconds;
  }
};

// Returns a case for each scenario and number of steps; `cases` outlive them. ConfigError for a number
// below 1.
std::vector<RoundsCase> rounds_beside(const std::vector<Case>& cases, const std::vector<std::int64_t>& steps);

// For each scenario a sentence: with how many steps a round rounds are as fast as the policy, and with how
// many a rank computes for 95 % of the time.
std::vector<std::string> when_rounds_pay(const std::vector<RoundsCase>& rounds);

// The list of to_json(cases), and behind it {model, cluster, ranks, policy "rounds", steps_a_round,
// averaging, iteration_seconds, ...}.
std::string to_json(const std::vector<Case>& cases, const std::vector<RoundsCase>& rounds);

// Rounds instead of the policy that a plan found, for as many samples. They change what is learnt, so that a
// plan tells of them only where ranks would wait for most of the time.
struct PlannedRounds {
  struct Row {
    std::int64_t steps = 1;  // of a round
    methods::rounds::RoundTimes waits, overlaps;
  };
  std::string policy;  // in whose place
  double policy_seconds = 0;
  methods::rounds::RoundJob job;
  std::vector<Row> rows;
  std::int64_t as_fast_from = 0;  // steps of a round, where the average is waited for
  std::int64_t hidden_from =
      0;  // steps of a round, where steps go on meanwhile: nothing is exposed from there on
  std::string sentence;
};
// None where ranks compute for half of the time or more.
std::optional<PlannedRounds> rounds_instead_of(const plan::Row& row, const Scenario& scenario,
                                               const cost::CollectiveTimes& times, int micro_batches);

}  // namespace dear::cases
