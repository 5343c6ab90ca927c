#include "studies/kfac/calibration.h"

#include "studies/kfac/outcomes.h"
#include "studies/report/downhill_simplex.h"
#include <cmath>
#include <utility>

namespace dear::studies::kfac {
namespace {

using dear::methods::kfac::Costs;
using dear::methods::kfac::Factor;
using dear::methods::kfac::InverseCost;
using dear::methods::kfac::LinearCost;

constexpr int kMoves = 30;

double square_of_relative(double modelled, double published) {
  const double error = modelled / published - 1;
  return error * error;
}

// The line through sums: `seconds` of n pieces that measure `total` together.
LinearCost line_through(const std::vector<std::pair<std::pair<std::size_t, double>, double>>& sums) {
  std::vector<std::pair<std::int64_t, double>> means;
  for (const auto& [sizes, seconds] : sums) {
    const auto pieces = static_cast<double>(sizes.first);
    means.emplace_back(std::llround(sizes.second / pieces), seconds / pieces);
  }
  return dear::methods::kfac::fit_linear(means);
}

InverseCost fit_inverses(const PublishedKfac& published, const std::vector<PublishedJob>& jobs,
                         const Half& fitted) {
  std::vector<std::pair<std::pair<std::size_t, double>, double>> sums;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!fitted[i]) continue;
    const std::vector<Factor> factors = jobs[i].job.factors();
    double cubes = 0;
    for (const Factor& factor : factors) cubes += std::pow(static_cast<double>(factor.dimension), 3);
    sums.push_back({{factors.size(), cubes}, published.models[i].inverses.local});
  }
  const LinearCost line = line_through(sums);
  return InverseCost::cubic(line.start_seconds, line.seconds_per_element);
}

// Starts and seconds are positive: they are searched for as logarithms.
LinearCost fit_broadcast(const PublishedKfac& published, const std::vector<PublishedJob>& jobs,
                         const Half& fitted, Costs costs) {
  const auto cost_at = [&](const std::vector<double>& at) {
    return LinearCost{published.broadcast.start_seconds * std::exp(at[0]),
                      published.broadcast.seconds_per_element * std::exp(at[1])};
  };
  const std::vector<double> best = studies::downhill_simplex(
      [&](const std::vector<double>& at) {
        costs.broadcast = cost_at(at);
        double loss = 0;
        for (std::size_t i = 0; i < jobs.size(); ++i)
          if (fitted[i])
            loss += square_of_relative(seconds_of(by_placement(jobs[i], costs), "round-robin"),
                                       published.models[i].inverses.round_robin);
        return loss;
      },
      {0, 0}, 0.5, 120);
  return cost_at(best);
}

// The seconds per element with which factors travel in bulk as published, after so long a start.
double per_element(const PublishedKfac& published, const std::vector<PublishedJob>& jobs, const Half& fitted,
                   double start_seconds) {
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!fitted[i]) continue;
    sum += (published.models[i].factors_sent.bulk - start_seconds) /
           static_cast<double>(elements_of(jobs[i].job.factors()));
    ++count;
  }
  return sum / count;
}

Costs fit_factors_sent(const PublishedKfac& published, const std::vector<PublishedJob>& jobs,
                       const Half& fitted, Costs costs, Ways ways) {
  const auto set = [&](const std::vector<double>& at) {
    const double start = published.all_reduce.start_seconds * std::exp(at[0]);
    costs.all_reduce = {start, per_element(published, jobs, fitted, start)};
    costs.interference.computation = 1 + std::exp(at[1]);
  };
  const std::vector<double> best = studies::downhill_simplex(
      [&](const std::vector<double>& at) {
        set(at);
        if (!(costs.all_reduce.seconds_per_element > 0)) return std::numeric_limits<double>::infinity();
        double loss = 0;
        for (std::size_t i = 0; i < jobs.size(); ++i) {
          if (!fitted[i]) continue;
          for (const Outcome& sent : by_fusion(jobs[i], costs, ways))
            loss += square_of_relative(sent.seconds, published.models[i].factors_sent.of(sent.name));
        }
        return loss;
      },
      {0, 0}, 0.5, kMoves);
  set(best);
  return costs;
}

LinearCost half_of(const LinearCost& cost) { return {cost.start_seconds / 2, cost.seconds_per_element / 2}; }

}  // namespace

Half fitted_half(std::size_t models) {
  Half half;
  for (std::size_t i = 0; i < models; ++i) half.push_back(i % 4 == 1 || i % 4 == 2);
  return half;
}

Half other_half(Half half) {
  half.flip();
  return half;
}

Costs published_costs(const PublishedKfac& published) {
  return {.ranks = published.ranks,
          .all_reduce = published.all_reduce,
          .reduce = half_of(published.all_reduce),  // one of its two halves
          .broadcast = published.broadcast,
          .invert = InverseCost::exponential(published.inverse_start_seconds, published.inverse_growth),
          .interference = {}};
}

Costs calibrate_to_parts(const PublishedKfac& published, const std::vector<PublishedJob>& jobs,
                         std::size_t model, Costs costs, Ways ways) {
  const std::vector<Factor> factors = jobs[model].job.factors();
  const std::string& name = published.models[model].model;
  double inverses = 0, broadcasts = 0;
  for (const Factor& factor : factors) {
    inverses += costs.invert.seconds(factor.dimension);
    broadcasts += costs.broadcast.seconds(factor.packed_elements());
  }
  costs.invert = costs.invert.times(parts_of(published, name, "d-kfac").inverses / inverses);
  const double slower = parts_of(published, name, "mpd-kfac").inverses_sent / broadcasts;
  costs.broadcast.start_seconds *= slower;
  costs.broadcast.seconds_per_element *= slower;
  Half alone(jobs.size());
  alone[model] = true;
  return fit_factors_sent(published, jobs, alone, std::move(costs), ways);
}

Costs calibrate(const PublishedKfac& published, const std::vector<PublishedJob>& jobs, const Half& fitted) {
  Costs costs = published_costs(published);
  costs.invert = fit_inverses(published, jobs, fitted);
  costs.broadcast = fit_broadcast(published, jobs, fitted, costs);
  costs = fit_factors_sent(published, jobs, fitted, costs, kAllWays);
  costs.reduce = half_of(costs.all_reduce);
  return costs;
}

}  // namespace dear::studies::kfac
