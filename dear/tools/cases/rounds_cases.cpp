#include "dear/tools/cases/rounds_cases.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/units.h"

namespace dear::cases {
namespace {

using methods::rounds::Averaging;
using methods::rounds::RoundTimes;

constexpr double kComputes = 0.95;  // of the time, where communication no longer matters
constexpr double kWaits = 0.5;      // of the time, from where on a plan tells of rounds
constexpr std::int64_t kPlannedSteps[] = {1, 16, 64, 256};

methods::rounds::RoundJob job_of(const sim::Evaluation& evaluation, const Workload& workload,
                                 const cost::CollectiveTimes& times, int micro_batches) {
  return {
      .step_seconds = micro_batches * (evaluation.f_seconds + evaluation.b_seconds) + workload.update_seconds,
      .bytes = workload.bytes(),
      .times = times};
}
methods::rounds::RoundJob job_of(const Case& one) {
  return job_of(one.evaluation, one.scenario->workload, one.times, one.options.micro_batches);
}

// "from 16 steps a round on"
std::string from_steps(std::int64_t steps) {
  return steps == 0   ? "with no number of steps"
         : steps == 1 ? "with any number of steps a round"
                      : fmt::format("from {} steps a round on", steps);
}

std::string sentence_on(const RoundsCase& one) {
  const double policy = one.beside->evaluation.iteration.seconds;
  const std::string job =
      fmt::format("{} on {}", one.beside->scenario->workload.name, one.beside->scenario->cluster.name);
  if (one.job.step_seconds > kComputes * policy)
    return fmt::format("{}: rounds gain at most {:.0f} %, for {} exposes little of its communication.", job,
                       100 * (policy / one.job.step_seconds - 1), one.beside->policy->name);
  const auto steps = [&](double seconds, Averaging averaging) {
    return from_steps(methods::rounds::steps_for(one.job, seconds, averaging));
  };
  const double computing = one.job.step_seconds / kComputes;
  return fmt::format(
      "{}: rounds are as fast as {} {}, and ranks compute for {:.0f} % of the time {}; where steps "
      "go on meanwhile, {}.",
      job, one.beside->policy->name, steps(policy, Averaging::waits), 100 * kComputes,
      steps(computing, Averaging::waits), steps(computing, Averaging::overlaps));
}

nlohmann::ordered_json row_of(const RoundsCase& one, const char* averaging, const RoundTimes& times) {
  return {{"model", one.beside->scenario->workload.name},
          {"cluster", one.beside->scenario->cluster.name},
          {"ranks", one.job.times.ranks},
          {"policy", "rounds"},
          {"steps_a_round", one.steps},
          {"averaging", averaging},
          {"iteration_seconds", times.seconds},
          {"compute_seconds", one.job.step_seconds},
          {"exposed_communication_seconds", times.exposed_seconds},
          {"sent_bytes", times.sent_bytes},
          {"beside", one.beside->policy->name},
          {"speed_up", one.speed_up(times)}};
}

}  // namespace

std::vector<RoundsCase> rounds_beside(const std::vector<Case>& cases,
                                      const std::vector<std::int64_t>& steps) {
  std::vector<RoundsCase> rounds;
  for (std::size_t begin = 0, end = 0; begin < cases.size(); begin = end) {
    const Case* fastest = &cases[begin];
    for (end = begin; end < cases.size() && cases[end].scenario == fastest->scenario; ++end)
      if (!cases[end].options.compression &&
          cases[end].evaluation.iteration.seconds < fastest->evaluation.iteration.seconds)
        fastest = &cases[end];
    for (const std::int64_t number : steps) {
      RoundsCase& one =
          rounds.emplace_back(RoundsCase{.beside = fastest, .job = job_of(*fastest), .steps = number});
      one.waits = methods::rounds::times_of_rounds(one.job, number, Averaging::waits);
      one.overlaps = methods::rounds::times_of_rounds(one.job, number, Averaging::overlaps);
    }
  }
  return rounds;
}

std::optional<PlannedRounds> rounds_instead_of(const plan::Row& row, const Scenario& scenario,
                                               const cost::CollectiveTimes& times, int micro_batches) {
  PlannedRounds rounds{.policy = std::string(row.policy->name),
                       .policy_seconds = row.seconds(),
                       .job = job_of(row.evaluation, scenario.workload, times, micro_batches)};
  const methods::rounds::RoundJob& job = rounds.job;
  if (times.ranks < 2 || job.step_seconds >= (1 - kWaits) * rounds.policy_seconds) return std::nullopt;
  for (const std::int64_t steps : kPlannedSteps)
    rounds.rows.push_back({.steps = steps,
                           .waits = methods::rounds::times_of_rounds(job, steps, Averaging::waits),
                           .overlaps = methods::rounds::times_of_rounds(job, steps, Averaging::overlaps)});
  rounds.as_fast_from = methods::rounds::steps_for(job, rounds.policy_seconds, Averaging::waits);
  rounds.hidden_from = methods::rounds::steps_for(job, job.step_seconds, Averaging::overlaps);
  rounds.sentence = fmt::format(
      "Rounds send less: they are as fast as {} {}, ranks compute for {:.0f} % of the time {}, and an "
      "exchange that "
      "travels under steps is hidden {}.",
      rounds.policy, from_steps(rounds.as_fast_from), 100 * kComputes,
      from_steps(methods::rounds::steps_for(job, job.step_seconds / kComputes, Averaging::waits)),
      from_steps(rounds.hidden_from));
  return rounds;
}

std::vector<std::string> when_rounds_pay(const std::vector<RoundsCase>& rounds) {
  std::vector<std::string> sentences;
  const Case* told = nullptr;
  for (const RoundsCase& one : rounds) {
    if (one.beside == told) continue;
    told = one.beside;
    sentences.push_back(sentence_on(one));
  }
  return sentences;
}

std::string to_json(const std::vector<Case>& cases, const std::vector<RoundsCase>& rounds) {
  auto list = nlohmann::ordered_json::parse(to_json(cases));
  for (const RoundsCase& one : rounds) {
    list.push_back(row_of(one, "waits", one.waits));
    list.push_back(row_of(one, "overlaps", one.overlaps));
  }
  return list.dump(2) + "\n";
}

}  // namespace dear::cases
