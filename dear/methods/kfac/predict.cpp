#include "dear/methods/kfac/predict.h"

#include <algorithm>
#include <array>

#include "dear/predict/sim/network_model.h"
#include "dear/predict/sim/ranks.h"

namespace dear::methods::kfac {
namespace {

// The seconds of each step on a rank that does it alone; those of a collective are among all ranks.
std::vector<double> seconds_of_all(const Job& job, const Grouping& grouping, const Plan& plan,
                                   const Costs& costs, const Iteration& iteration) {
  const auto seconds_of = [&](const Work& work) -> double {
    switch (work.kind) {
      case WorkKind::forward:
        return job.workload.layers[work.index].forward_seconds;
      case WorkKind::backward:
        return job.workload.layers[work.index].backward_seconds;
      case WorkKind::commit:
        return 0;
      case WorkKind::compute_factor: {
        const Factor& factor = plan.factors[work.index];
        const LayerCurvature& curvature = *job.curvature[factor.layer];
        return factor.side == Side::input ? curvature.input_factor_seconds : curvature.output_factor_seconds;
      }
      case WorkKind::reduce_factors: {
        const Plan::Group& group = plan.groups[work.index];
        return (group.owner ? costs.reduce : costs.all_reduce).seconds(group.elements);
      }
      case WorkKind::reduce_gradients:
        return costs.all_reduce.seconds(grouping.buckets()[work.index].bytes / size_of(DType::f32));
      case WorkKind::invert:
        return costs.invert.seconds(plan.factors[work.index].dimension);
      case WorkKind::broadcast:
        return costs.broadcast.seconds(plan.factors[work.index].packed_elements());
      case WorkKind::precondition:
        return job.curvature[work.index]->precondition_seconds;
      case WorkKind::update:
        break;
    }
    return job.workload.update_seconds;
  };
  std::vector<double> seconds;
  for (const Work& work : iteration.work)
    seconds.push_back(work.communicates() && costs.ranks == 1 ? 0 : seconds_of(work));
  return seconds;
}

bool inverts(const Plan& plan, FactorId factor, int rank) {
  return plan.placement[factor].value_or(rank) == rank;
}
bool keeps(const Plan& plan, FactorId factor, int rank) {
  return !plan.reduce_to_owner || inverts(plan, factor, rank);
}

double& part_of(Breakdown& parts, WorkKind kind) {
  constexpr std::array kParts{&Breakdown::passes,   &Breakdown::passes,        &Breakdown::passes,
                              &Breakdown::factors,  &Breakdown::factors_sent,  &Breakdown::gradients,
                              &Breakdown::inverses, &Breakdown::inverses_sent, &Breakdown::update,
                              &Breakdown::update};
  return parts.*kParts.at(static_cast<std::size_t>(kind));
}

constexpr double kShortestSeconds = 1e-9;  // anything less is a rounding error between two steps

void divide(Breakdown& parts, double by) {
  for (double* part : {&parts.passes, &parts.gradients, &parts.factors, &parts.factors_sent, &parts.inverses,
                       &parts.inverses_sent, &parts.update})
    *part = *part / by < kShortestSeconds ? 0 : *part / by;
}

// Ranks that invert nothing of their own do alike: one of them is enough. Owners have the lowest numbers.
int played_ranks(const Plan& plan, int ranks) {
  int owners = 0;
  for (const std::optional<int>& owner : plan.placement) owners = std::max(owners, owner.value_or(-1) + 1);
  return std::min(owners + 1, ranks);
}

}  // namespace

std::function<double(Instance)> step_seconds(const Job& job, const Grouping& grouping, const Plan& plan,
                                             const Costs& costs, const Iteration& iteration, int rank) {
  std::vector<double> seconds = seconds_of_all(job, grouping, plan, costs, iteration);
  std::vector<double> unpacking(job.curvature.size());  // by layer
  Rhythm renewal;
  for (StepId step = 0; step < seconds.size(); ++step) {
    const Work& work = iteration.work[step];
    if (work.kind != WorkKind::invert) continue;
    renewal = iteration.graph.rhythm_of(step);
    const Factor& factor = plan.factors[work.index];
    if (!inverts(plan, work.index, rank)) {
      seconds[step] = 0;
      unpacking[factor.layer] += costs.unpack.seconds(factor.packed_elements());
    }
    if (keeps(plan, work.index, rank)) seconds[step] += costs.average.seconds(factor.packed_elements());
  }
  return [work = iteration.work, seconds = std::move(seconds), unpacking = std::move(unpacking),
          renewal](Instance which) {
    const bool unpacks =
        work[which.step].kind == WorkKind::precondition && !renewal.rests_in(which.iteration);
    return seconds[which.step] + (unpacks ? unpacking[work[which.step].index] : 0);
  };
}

// A span of the network lane holds the wait for the last rank, too.
Breakdown break_down(const Iteration& iteration, const std::vector<conductor::StepSpan>& spans, double from,
                     double to, std::int64_t iterations) {
  std::vector<conductor::StepSpan> computing, communicating;
  for (const conductor::StepSpan& span : spans)
    (iteration.work[span.which.step].communicates() ? communicating : computing).push_back(span);
  const auto by_begin = [](const conductor::StepSpan& a, const conductor::StepSpan& b) {
    return a.begin_seconds < b.begin_seconds;
  };
  std::stable_sort(computing.begin(), computing.end(), by_begin);
  std::stable_sort(communicating.begin(), communicating.end(), by_begin);
  Breakdown parts;
  const auto overlap = [&](double begin, double end) {
    return std::max(0.0, std::min(end, to) - std::max(begin, from));
  };
  double idle_from = 0;
  std::size_t next = 0;  // of communicating: those before have ended
  const auto give_away = [&](double until) {
    while (next < communicating.size() && communicating[next].end_seconds <= idle_from) ++next;
    for (std::size_t i = next; i < communicating.size() && communicating[i].begin_seconds < until; ++i)
      part_of(parts, iteration.work[communicating[i].which.step].kind) += overlap(
          std::max(communicating[i].begin_seconds, idle_from), std::min(communicating[i].end_seconds, until));
  };
  for (const conductor::StepSpan& span : computing) {
    if (span.begin_seconds > idle_from) give_away(span.begin_seconds);
    part_of(parts, iteration.work[span.which.step].kind) += overlap(span.begin_seconds, span.end_seconds);
    idle_from = std::max(idle_from, span.end_seconds);
  }
  divide(parts, static_cast<double>(iterations));
  return parts;
}

namespace {

// Two intervals, and the commit of the iteration after them.
sim::RanksResult play(const Job& job, const Grouping& grouping, const Plan& plan, const Costs& costs,
                      const Iteration& iteration, const Intervals& intervals) {
  const int played = played_ranks(plan, costs.ranks);
  std::vector<std::function<double(Instance)>> seconds;  // by rank
  for (int rank = 0; rank < played; ++rank)
    seconds.push_back(step_seconds(job, grouping, plan, costs, iteration, rank));
  sim::RanksJob ranks{.graph = iteration.graph, .communicates = {}, .commit = iteration.commit};
  for (const Work& work : iteration.work) ranks.communicates.push_back(work.communicates());
  const auto own_seconds = [&](int rank, Instance which) {
    return seconds[static_cast<std::size_t>(rank)](which);
  };
  const std::vector<double> of_all = seconds_of_all(job, grouping, plan, costs, iteration);
  sim::ClosedFormNetwork network(of_all, played);
  return sim::drive_ranks(ranks, 2 * std::int64_t{intervals.inverses} + 1, played, own_seconds, network, {},
                          costs.interference);
}

// [Note: short intervals] An iteration ends after its own gradients, which travel behind the factors of the
// iteration before, and an iteration with inverses after all that travels. So from one renewal of factors to
// the next iterations are alike from the third on; and so are, from one renewal of inverses to the next, the
// stretches that begin with a renewal of factors. Of each four are played at most: the first two, one that
// stands for all that are alike, and the last, whose end is the next renewal's.
constexpr std::uint32_t kPlayed = 4;
constexpr std::uint32_t kStandsForOthers = 2;

std::uint32_t played_of(std::uint32_t count) { return std::min(count, kPlayed); }

// For how many of `count` the one at place `at` of those that are played stands.
double stands_for(std::uint32_t at, std::uint32_t count) {
  return count > kPlayed && at == kStandsForOthers ? count - (kPlayed - 1) : 1;
}

}  // namespace

Intervals shortened(const Intervals& intervals) {
  check(intervals);
  const std::uint32_t factors = played_of(intervals.factors);
  return {.factors = factors, .inverses = factors * played_of(intervals.inverses / intervals.factors)};
}

double mean_iteration_seconds(const Job& job, const Grouping& grouping, const Plan& plan, const Costs& costs,
                              const Intervals& intervals) {
  const Intervals played = shortened(intervals);
  const Iteration iteration = make_iteration(job, grouping, plan, played);
  const sim::RanksResult run = play(job, grouping, plan, costs, iteration, played);
  const std::vector<double>& commits = run.commit_seconds.front();
  double seconds = 0;  // of an interval
  for (std::uint32_t at = 0; at < played.inverses; ++at) {
    const std::size_t commit = played.inverses + at;
    seconds += stands_for(at % played.factors, intervals.factors) *
               stands_for(at / played.factors, intervals.inverses / intervals.factors) *
               (commits[commit + 1] - commits[commit]);
  }
  return seconds / intervals.inverses;
}

Prediction predict(const Job& job, const Grouping& grouping, const Plan& plan, const Costs& costs,
                   const Intervals& intervals) {
  Prediction prediction{.iteration_seconds = 0,
                        .parts = {},
                        .iteration = make_iteration(job, grouping, plan, intervals),
                        .spans = {}};
  const Iteration& iteration = prediction.iteration;
  sim::RanksResult run = play(job, grouping, plan, costs, iteration, intervals);
  // Inverses are on every rank before the update of their iteration, so that intervals are alike from the
  // second one on.
  const auto warm_up = static_cast<std::int64_t>(intervals.inverses);
  const std::vector<double>& commits = run.commit_seconds.front();
  const double from = commits[static_cast<std::size_t>(warm_up)];
  const double to = commits[static_cast<std::size_t>(2 * warm_up)];
  prediction.iteration_seconds = (to - from) / static_cast<double>(warm_up);
  prediction.parts = break_down(iteration, run.spans, from, to, warm_up);
  prediction.spans = std::move(run.spans);
  return prediction;
}

}  // namespace dear::methods::kfac
