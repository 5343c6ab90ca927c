#include "dear/methods/edge/paba.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/edge/root.h"

namespace dear::methods::edge {
namespace {

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

void check(const Worker& worker, const std::string& name) {
  const auto require = [&](const char* what, double value, const char* remedy) {
    if (!is_positive(value))
      throw ConfigError(
          fmt::format("{} of {} is {}, but must be a finite number above 0{}", what, name, value, remedy));
  };
  require("cycles_per_parameter", worker.cycles_per_parameter, "");
  require("frequency_hz", worker.frequency_hz, "");
  constexpr const char* kNoChannel = ": a worker without a channel cannot work, so leave out its group";
  require("efficiency_down", worker.efficiency_down, kNoChannel);
  require("efficiency_up", worker.efficiency_up, kNoChannel);
  if (!std::isfinite(worker.overhead_seconds) || worker.overhead_seconds < 0)
    throw ConfigError(fmt::format("overhead_seconds of {} is {}, but must be a finite number from 0 on", name,
                                  worker.overhead_seconds));
}

double parameters_of(const PabaProblem& problem) { return static_cast<double>(problem.parameters); }

}  // namespace

double margin_seconds(std::int64_t samples, double bits, double bits_per_second) {
  if (samples < 0 || !is_positive(bits) || !is_positive(bits_per_second))
    throw ConfigError(fmt::format("margins of {} samples with {} bits at {} bits a second cannot be sent",
                                  samples, bits, bits_per_second));
  return static_cast<double>(samples) * bits / bits_per_second;
}

void check(const PabaProblem& problem) {
  const std::size_t groups = problem.groups.size();
  if (groups == 0) throw ConfigError("there is no group of workers: give at least one");
  if (problem.parameters < 1)
    throw ConfigError(fmt::format("parameters is {}, but must be at least 1", problem.parameters));
  if (static_cast<std::int64_t>(groups) > problem.parameters)
    throw ConfigError(
        fmt::format("{} groups cannot share {} parameters: each needs a block of at least one, so give fewer",
                    groups, problem.parameters));
  const std::pair<const char*, double> amounts[] = {{"bits_per_parameter", problem.bits_per_parameter},
                                                    {"bandwidth_down_hz", problem.bandwidth_down_hz},
                                                    {"bandwidth_up_hz", problem.bandwidth_up_hz}};
  for (const auto& [name, value] : amounts)
    if (!is_positive(value))
      throw ConfigError(fmt::format("{} is {}, but must be a finite number above 0", name, value));
  const std::size_t workers = problem.groups.front().size();
  if (workers == 0) throw ConfigError("group 0 has no worker: give at least one");
  for (std::size_t group = 0; group < groups; ++group) {
    if (problem.groups[group].size() != workers)
      throw ConfigError(fmt::format(
          "group {} has {} workers, but group 0 has {}: each subset of the samples needs a worker in every "
          "group",
          group, problem.groups[group].size(), workers));
    for (std::size_t worker = 0; worker < workers; ++worker)
      check(problem.groups[group][worker], fmt::format("worker {} of group {}", worker, group));
  }
}

double seconds_of(const Worker& worker, const PabaProblem& problem, double block,
                  const Bandwidth& bandwidth) {
  if (block <= 0) return worker.overhead_seconds;
  return worker.overhead_seconds +
         block * (problem.bits_per_parameter / (bandwidth.down_hz * worker.efficiency_down) +
                  worker.cycles_per_parameter / worker.frequency_hz +
                  problem.bits_per_parameter / (bandwidth.up_hz * worker.efficiency_up));
}

double seconds_of(const PabaProblem& problem, const std::vector<double>& blocks,
                  const Bandwidths& bandwidth) {
  double slowest = 0;
  for (std::size_t group = 0; group < blocks.size(); ++group)
    for (std::size_t worker = 0; worker < problem.groups[group].size(); ++worker)
      slowest = std::max(slowest, seconds_of(problem.groups[group][worker], problem, blocks[group],
                                             bandwidth[group][worker]));
  return slowest;
}

std::vector<double> equal_blocks(const PabaProblem& problem) {
  return std::vector<double>(problem.groups.size(),
                             parameters_of(problem) / static_cast<double>(problem.groups.size()));
}

Bandwidths equal_bandwidth(const PabaProblem& problem) {
  const double workers =
      static_cast<double>(problem.groups.size()) * static_cast<double>(problem.groups.front().size());
  return Bandwidths(problem.groups.size(), std::vector<Bandwidth>(problem.groups.front().size(),
                                                                  {problem.bandwidth_down_hz / workers,
                                                                   problem.bandwidth_up_hz / workers}));
}

// A group's block in T seconds is the least that one of its workers does in that time; blocks grow with T.
std::vector<double> blocks_for(const PabaProblem& problem, const Bandwidths& bandwidth) {
  std::vector<double> blocks(problem.groups.size());
  double latest_start = 0;
  const auto fill = [&](double seconds) {
    double sum = 0;
    for (std::size_t group = 0; group < blocks.size(); ++group) {
      double least = INFINITY;
      for (std::size_t worker = 0; worker < problem.groups[group].size(); ++worker) {
        const Worker& one = problem.groups[group][worker];
        const double each = seconds_of(one, problem, 1, bandwidth[group][worker]) - one.overhead_seconds;
        least = std::min(least, (seconds - one.overhead_seconds) / each);
      }
      sum += blocks[group] = std::max(0.0, least);
    }
    return sum - parameters_of(problem);
  };
  for (const std::vector<Worker>& group : problem.groups)
    for (const Worker& worker : group) latest_start = std::max(latest_start, worker.overhead_seconds);
  const double equal = seconds_of(problem, equal_blocks(problem), bandwidth);
  // Where a group has no bandwidth, no number of seconds suffices for equal blocks.
  const double guess = std::isfinite(equal) ? equal : 1 + 2 * latest_start;
  const Bracket bracket = narrow(fill, enclose(fill, {0, guess, 0}), 1e-15);
  const double over = 1 + fill(bracket.high) / parameters_of(problem);
  for (double& block : blocks) block /= over;
  return blocks;
}

std::vector<std::int64_t> whole_blocks(const PabaProblem& problem, const std::vector<double>& blocks,
                                       const Bandwidths& bandwidth) {
  std::vector<std::int64_t> whole;
  std::int64_t left = problem.parameters;
  for (const double block : blocks) {
    whole.push_back(static_cast<std::int64_t>(std::floor(block)));
    left -= whole.back();
  }
  const auto one_more = [&](std::size_t group) {
    double slowest = 0;
    for (std::size_t worker = 0; worker < problem.groups[group].size(); ++worker)
      slowest =
          std::max(slowest, seconds_of(problem.groups[group][worker], problem,
                                       static_cast<double>(whole[group] + 1), bandwidth[group][worker]));
    return slowest;
  };
  for (; left > 0; --left) {
    std::size_t best = 0;
    for (std::size_t group = 1; group < whole.size(); ++group)
      if (one_more(group) < one_more(best)) best = group;
    ++whole[best];
  }
  return whole;
}

namespace {

PabaPlan plan_of(const PabaProblem& problem, std::string_view scheme, std::vector<double> blocks,
                 Bandwidths bandwidth) {
  PabaPlan plan{
      .scheme = scheme, .blocks = std::move(blocks), .whole = {}, .bandwidth = std::move(bandwidth)};
  plan.seconds = seconds_of(problem, plan.blocks, plan.bandwidth);
  plan.whole = whole_blocks(problem, plan.blocks, plan.bandwidth);
  const std::vector<double> whole(plan.whole.begin(), plan.whole.end());
  plan.whole_seconds = seconds_of(problem, whole, plan.bandwidth);
  return plan;
}

PabaPlan plan_of(const PabaProblem& problem, std::string_view scheme, const Allocation& allocation,
                 bool joint) {
  PabaPlan plan = plan_of(problem, scheme, allocation.blocks, allocation.bandwidth);
  plan.bound_seconds = std::min(allocation.bound_seconds, plan.seconds);  // rounding
  plan.residual = kkt_residual(problem, plan.blocks, plan.bandwidth, joint);
  plan.evaluations = allocation.evaluations;
  return plan;
}

PabaPlan equal(const PabaProblem& problem) {
  return plan_of(problem, "equal", equal_blocks(problem), equal_bandwidth(problem));
}
PabaPlan parameters_alone(const PabaProblem& problem) {
  PabaPlan plan =
      plan_of(problem, "parameters", blocks_for(problem, equal_bandwidth(problem)), equal_bandwidth(problem));
  plan.bound_seconds = plan.seconds;  // a closed form
  return plan;
}
PabaPlan bandwidth_alone(const PabaProblem& problem) {
  return plan_of(problem, "bandwidth", bandwidth_for(problem, equal_blocks(problem)), false);
}
PabaPlan one_after_the_other(const PabaProblem& problem) {
  const Allocation first = bandwidth_for(problem, equal_blocks(problem));
  return plan_of(problem, "bandwidth-then-parameters", blocks_for(problem, first.bandwidth), first.bandwidth);
}
PabaPlan joint(const PabaProblem& problem) {
  return plan_of(problem, "joint", joint_allocation(problem), true);
}

}  // namespace

const std::vector<PabaScheme>& paba_schemes() {
  static const std::vector<PabaScheme> kSchemes = {
      {"equal", "equal blocks, equal bandwidth", equal},
      {"parameters", "equal bandwidth, and the best blocks for it", parameters_alone},
      {"bandwidth", "equal blocks, and the best bandwidth for them", bandwidth_alone},
      {"bandwidth-then-parameters", "the best blocks for the bandwidth of the scheme bandwidth",
       one_after_the_other},
      {"joint", "the best of both", joint},
  };
  return kSchemes;
}

PabaPlan solve_paba(const PabaProblem& problem, std::string_view scheme, double deadline_seconds) {
  const PabaScheme& chosen = find_named(paba_schemes(), scheme, "scheme");
  check(problem);
  if (!std::isfinite(deadline_seconds) || deadline_seconds < 0)
    throw ConfigError(
        fmt::format("a deadline of {} s cannot be: give a finite number from 0 on", deadline_seconds));
  PabaPlan plan = chosen.solve(problem);
  if (!std::isfinite(plan.seconds))
    throw ConfigError("an iteration takes longer than any number of seconds: check the sizes of the problem");
  if (deadline_seconds > 0 && plan.seconds > deadline_seconds)
    throw ConfigError(fmt::format(
        "an iteration takes {:.6g} s by the scheme {}, longer than the deadline of {:g} s: give more time, "
        "bandwidth or workers",
        plan.seconds, scheme, deadline_seconds));
  return plan;
}

PabaProblem without(const PabaProblem& problem, const std::vector<LostWorker>& lost) {
  std::set<int> groups;
  for (const LostWorker& one : lost) {
    if (one.group < 0 || index_of(one.group) >= problem.groups.size() || one.worker < 0 ||
        index_of(one.worker) >= problem.groups[index_of(one.group)].size())
      throw ConfigError(
          fmt::format("worker {} of group {} cannot be lost: there is none", one.worker, one.group));
    groups.insert(one.group);
  }
  PabaProblem rest = problem;
  rest.groups.clear();
  for (std::size_t group = 0; group < problem.groups.size(); ++group)
    if (!groups.contains(static_cast<int>(group))) rest.groups.push_back(problem.groups[group]);
  if (rest.groups.empty())
    throw ConfigError("every group has lost a worker, so none has all samples: bring one back");
  return rest;
}

}  // namespace dear::methods::edge
