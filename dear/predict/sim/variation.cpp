#include "dear/predict/sim/variation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/predict/sim/ranks.h"

namespace dear::sim {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014, doi:10.1145/2714064.2660195): a bijection that mixes well.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

double unit_interval(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

// Quantiles 0.975 of Student's distribution for 1 to 30 degrees of freedom.
constexpr std::array kStudent = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                 2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                 2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
constexpr double kNormal = 1.960;

double steady_iteration(const std::vector<std::vector<double>>& commit_seconds, std::int64_t iterations,
                        const Jobs& jobs) {
  const auto ranks = static_cast<int>(commit_seconds.size());
  const auto last_commit = [&](int job, std::int64_t iteration) {
    double latest = 0;
    for (int member = 0; member < ranks / jobs.count; ++member) {
      const auto rank = static_cast<std::size_t>(jobs.rank_of(job, member, ranks));
      latest = std::max(latest, commit_seconds[rank].at(static_cast<std::size_t>(iteration)));
    }
    return latest;
  };
  const std::int64_t half = iterations / 2;
  double sum = 0;
  for (int job = 0; job < jobs.count; ++job)
    sum += last_commit(job, iterations - 1) - last_commit(job, iterations - 1 - half);
  return sum / static_cast<double>(half * jobs.count);
}

std::vector<double> starts(const Schedule& schedule, const std::vector<double>& step_seconds,
                           const Jobs& jobs, int ranks) {
  std::vector<double> starts(static_cast<std::size_t>(ranks), 0);
  double compute = 0;
  for (StepId step = 0; step < step_seconds.size(); ++step)
    if (schedule.lanes()[schedule.steps()[step].lane].kind == LaneKind::compute)
      compute += step_seconds[step];
  for (int rank = 0; rank < ranks; ++rank)
    starts[static_cast<std::size_t>(rank)] = compute * jobs.job_of(rank, ranks) / jobs.count;
  return starts;
}

void validate(const Variation& variation, std::int64_t iterations) {
  if (iterations < 4)
    throw ConfigError(
        fmt::format("a simulation of {} iterations reaches no steady state: give at least 4", iterations));
  if (variation.repetitions < 1)
    throw ConfigError(fmt::format("{} repetitions are none: give at least 1", variation.repetitions));
  if (!(variation.jitter >= 0 && variation.jitter <= 1))
    throw ConfigError(
        fmt::format("a jitter of {} of a step's time is not from 0 to 1: give, say, 0.05", variation.jitter));
}

}  // namespace

std::vector<double> all_slowdowns(const std::vector<Straggler>& stragglers, int ranks) {
  std::vector<double> slowdowns(static_cast<std::size_t>(ranks), 1);
  for (const auto& [rank, slowdown] : stragglers)
    if (rank < ranks) slowdowns[static_cast<std::size_t>(rank)] = slowdown;
  return slowdowns;
}

std::vector<double> folded_slowdowns(const std::vector<Straggler>& stragglers, int ranks) {
  const std::vector<double> all = all_slowdowns(stragglers, ranks);
  const std::set<double> distinct(all.begin(), all.end());
  return {distinct.begin(), distinct.end()};
}

Estimate estimate(const std::vector<double>& samples) {
  if (samples.empty()) throw ConfigError("there is no estimate without a sample");
  const auto n = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  if (samples.size() == 1) return {.seconds = mean};
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  const std::size_t freedom = samples.size() - 1;
  const double quantile = freedom <= kStudent.size() ? kStudent[freedom - 1] : kNormal;
  return {.seconds = mean, .half_width_seconds = quantile * std::sqrt(squares / (n - 1) / n)};
}

double jitter_factor(const Variation& variation, int repetition, int rank, Instance which) {
  if (variation.jitter == 0) return 1;
  std::uint64_t state = mix(variation.seed);
  for (const auto part :
       {static_cast<std::uint64_t>(repetition), static_cast<std::uint64_t>(rank),
        static_cast<std::uint64_t>(which.iteration), static_cast<std::uint64_t>(which.step)})
    state = mix(state ^ part);
  // Box and Muller 1958, doi:10.1214/aoms/1177706645
  const double radius = std::sqrt(-2 * std::log(unit_interval(state)));
  const double normal = radius * std::cos(2 * std::numbers::pi * unit_interval(mix(state)));
  const double variance = std::log1p(variation.jitter * variation.jitter);
  return std::exp(std::sqrt(variance) * normal - variance / 2);
}

Samples iteration_samples(const Schedule& schedule, const std::vector<double>& step_seconds,
                          const Variation& variation, const MakeNetwork& make_network,
                          std::int64_t iterations) {
  validate(variation, iterations);
  const int ranks = static_cast<int>(variation.slowdowns.size());
  Samples samples;
  for (int repetition = 0; repetition < variation.repetitions; ++repetition) {
    const std::unique_ptr<NetworkModel> network = make_network(ranks);
    const auto own_seconds = [&](int rank, Instance which) {
      return step_seconds[which.step] * variation.slowdowns[static_cast<std::size_t>(rank)] *
             jitter_factor(variation, repetition, rank, which);
    };
    RanksResult run = drive_ranks(schedule, iterations, ranks, own_seconds, *network,
                                  starts(schedule, step_seconds, variation.jobs, ranks),
                                  variation.interference, variation.shared);
    samples.iteration_seconds.push_back(steady_iteration(run.commit_seconds, iterations, variation.jobs));
    if (repetition == 0) samples.spans = std::move(run.spans);
  }
  return samples;
}

}  // namespace dear::sim
