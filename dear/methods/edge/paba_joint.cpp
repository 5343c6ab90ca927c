// The joint optimum. With one budget for all bandwidth the problem "most parameters in T seconds" is convex:
// a worker with T - overhead - c L = tau seconds for its messages needs a L / tau hertz, which is convex and
// increasing in L. With budgets down and up, let a hertz up cost `price` hertz down: the cheapest way for a
// worker to send a_down L down and a_up L up in tau seconds costs A L / tau, where
// A = (sqrt(a_down) + sqrt(price a_up))^2. So each price gives a problem with one budget, whose optimum is a
// bound, and at the best price both budgets are spent. Three nested searches: for the price, for T, for the
// marginal cost of a parameter, which is the same in every group; in each group Newton's method.
#include <algorithm>
#include <cmath>
#include <functional>

#include "dear/base/vocabulary/ids.h"
#include "dear/methods/edge/paba.h"
#include "dear/methods/edge/root.h"

namespace dear::methods::edge {
namespace {

struct Cost {
  double overhead = 0, compute = 0;  // seconds, and seconds a parameter
  double down = 0, up = 0;           // hertz seconds a parameter
  double both = 0;                   // at the price
};
using Costs = std::vector<std::vector<Cost>>;

Costs costs_of(const PabaProblem& problem, double price) {
  Costs costs(problem.groups.size());
  for (std::size_t group = 0; group < costs.size(); ++group)
    for (const Worker& worker : problem.groups[group]) {
      Cost cost{.overhead = worker.overhead_seconds,
                .compute = worker.cycles_per_parameter / worker.frequency_hz,
                .down = problem.bits_per_parameter / worker.efficiency_down,
                .up = problem.bits_per_parameter / worker.efficiency_up};
      cost.both = std::pow(std::sqrt(cost.down) + std::sqrt(price * cost.up), 2);
      costs[group].push_back(cost);
    }
  return costs;
}

// What a group pays for a block of L parameters in T seconds, and for one more. Infinite where it cannot be.
double paid(const std::vector<Cost>& group, double block, double seconds) {
  double sum = 0;
  for (const Cost& cost : group) {
    const double left = seconds - cost.overhead - cost.compute * block;
    if (left <= 0) return INFINITY;
    sum += cost.both * block / left;
  }
  return sum;
}
double marginal(const std::vector<Cost>& group, double block, double seconds) {
  double sum = 0;
  for (const Cost& cost : group) {
    const double left = seconds - cost.overhead - cost.compute * block;
    if (left <= 0) return INFINITY;
    sum += cost.both * ((seconds - cost.overhead) / left) / left;
  }
  return sum;
}

// The block at which one more parameter costs `most`. The marginal cost is convex and increasing, so Newton's
// method goes down to it from a block at which a single worker costs that.
double block_at(const std::vector<Cost>& group, double seconds, double most) {
  constexpr int kMostSteps = 100;
  if (marginal(group, 0, seconds) >= most) return 0;
  double block = INFINITY;
  for (const Cost& cost : group) {
    const double time = seconds - cost.overhead;
    block = std::min(block, (time - std::sqrt(cost.both * time / most)) / cost.compute);
  }
  for (int step = 0; step < kMostSteps && group.size() > 1; ++step) {
    double slope = 0;
    for (const Cost& cost : group) {
      const double left = seconds - cost.overhead - cost.compute * block;
      slope += 2 * cost.compute * cost.both * ((seconds - cost.overhead) / left) / left / left;
    }
    const double next = block - (marginal(group, block, seconds) - most) / slope;
    if (!(next < block) || next < 0) break;
    const bool ends = block - next <= 1e-16 * block;
    block = next;
    if (ends) break;
  }
  return block;
}

double latest_start(const Costs& costs) {
  double latest = 0;
  for (const std::vector<Cost>& group : costs)
    for (const Cost& cost : group) latest = std::max(latest, cost.overhead);
  return latest;
}

// For one price: the fastest iteration, its blocks and bandwidth.
class AtPrice {
 public:
  AtPrice(const PabaProblem& problem, double price, const std::vector<double>* fixed)
      : problem_(problem), price_(price), costs_(costs_of(problem, price)), fixed_(fixed) {
    budget_ = problem.bandwidth_down_hz + price * problem.bandwidth_up_hz;
  }

  void solve(double guess_seconds) {
    const auto spare = [this](double seconds) {
      return fixed_ == nullptr ? gained(seconds) : unspent(seconds);
    };
    double earliest = latest_start(costs_);
    if (fixed_ != nullptr)
      for (std::size_t group = 0; group < costs_.size(); ++group)
        for (const Cost& cost : costs_[group])
          earliest = std::max(earliest, cost.overhead + cost.compute * (*fixed_)[group]);
    const double guess = std::max(guess_seconds, earliest * (1 + 1e-9));
    const Bracket bracket = narrow(spare, enclose(spare, {earliest, guess, 0}), 1e-14);
    bound_ = bracket.low;
    seconds_ = bracket.high;
    spare(seconds_);
  }

  [[nodiscard]] double bound() const { return bound_; }
  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] int evaluations() const { return evaluations_; }

  // With what is spent of each budget, and without what rounding left.
  [[nodiscard]] Allocation allocation(double& down, double& up) const {
    Allocation found{.blocks = fixed_ == nullptr ? blocks_ : *fixed_,
                     .bandwidth = {},
                     .bound_seconds = bound_,
                     .price = price_,
                     .evaluations = evaluations_};
    down = up = 0;
    double sum = 0;
    for (std::size_t group = 0; group < costs_.size(); ++group) {
      const double block = found.blocks[group];
      sum += block;
      std::vector<Bandwidth>& bandwidths = found.bandwidth.emplace_back();
      for (const Cost& cost : costs_[group]) {
        const double each = block / (seconds_ - cost.overhead - cost.compute * block) * std::sqrt(cost.both);
        bandwidths.push_back({std::sqrt(cost.down) * each, std::sqrt(cost.up / price_) * each});
        down += bandwidths.back().down_hz;
        up += bandwidths.back().up_hz;
      }
    }
    for (double& block : found.blocks) block *= static_cast<double>(problem_.parameters) / sum;
    return found;
  }

 private:
  // Parameters in so many seconds above those of the problem.
  double gained(double seconds) {
    if (seconds <= latest_start(costs_)) return -INFINITY;
    blocks_.resize(costs_.size());
    // Against its root: with one worker a group, what is spent is a straight line between points at which a
    // group gets its first parameter.
    const auto overspent = [&](double root_of_most) {
      ++evaluations_;
      double sum = 0;
      for (std::size_t group = 0; group < costs_.size(); ++group) {
        blocks_[group] = block_at(costs_[group], seconds, root_of_most * root_of_most);
        sum += paid(costs_[group], blocks_[group], seconds);
      }
      return sum - budget_;
    };
    double least = INFINITY;
    for (const std::vector<Cost>& group : costs_)
      least = std::min(least, std::sqrt(marginal(group, 0, seconds)));
    const Bracket bracket = narrow(overspent, enclose(overspent, {least, 2 * least, 0}), 1e-14);
    overspent(bracket.low);
    double sum = -static_cast<double>(problem_.parameters);
    for (const double block : blocks_) sum += block;
    return sum;
  }
  double unspent(double seconds) {
    ++evaluations_;
    double sum = 0;
    for (std::size_t group = 0; group < costs_.size(); ++group)
      sum += paid(costs_[group], (*fixed_)[group], seconds);
    return budget_ - sum;
  }

  const PabaProblem& problem_;
  double price_;
  Costs costs_;
  const std::vector<double>* fixed_;
  double budget_ = 0, bound_ = 0, seconds_ = 0;
  std::vector<double> blocks_;
  int evaluations_ = 0;
};

Allocation best_over_prices(const PabaProblem& problem, const std::vector<double>* fixed) {
  constexpr double kWidest = 60;  // of the logarithm of a price, to either side
  const double middle = std::log(problem.bandwidth_down_hz / problem.bandwidth_up_hz);
  double guess =
      seconds_of(problem, fixed == nullptr ? equal_blocks(problem) : *fixed, equal_bandwidth(problem));
  int evaluations = 0;
  Allocation found;
  double bound = 0;
  // A higher price spends less up and more down.
  const auto imbalance = [&](double logarithm) {
    AtPrice at(problem, std::exp(logarithm), fixed);
    at.solve(guess);
    double down = 0, up = 0;
    found = at.allocation(down, up);
    bound = std::max(bound, at.bound());
    evaluations += at.evaluations();
    guess = at.seconds() * (1 + 1e-6);
    const double down_share = down / problem.bandwidth_down_hz, up_share = up / problem.bandwidth_up_hz;
    for (std::vector<Bandwidth>& group : found.bandwidth)
      for (Bandwidth& bandwidth : group) {
        bandwidth.down_hz /= down_share;
        bandwidth.up_hz /= up_share;
      }
    return down_share - up_share;
  };
  Bracket bracket{middle - 1, middle + 1, 0};
  while (imbalance(bracket.low) > 0 && bracket.low > middle - kWidest) bracket.low -= 2;
  while (imbalance(bracket.high) < 0 && bracket.high < middle + kWidest) bracket.high += 2;
  bracket = narrow([&](double shifted) { return imbalance(shifted + middle); },
                   {bracket.low - middle - 1e-9, bracket.high - middle + 1e-9, 0}, 1e-12);
  imbalance(middle + bracket.high);
  found.bound_seconds = bound;
  found.evaluations = evaluations;
  return found;
}

}  // namespace

Allocation bandwidth_for(const PabaProblem& problem, const std::vector<double>& blocks) {
  return best_over_prices(problem, &blocks);
}

Allocation joint_allocation(const PabaProblem& problem) {
  Allocation found = best_over_prices(problem, nullptr);
  // Rounding may leave workers that do not end together: the best blocks for this bandwidth are no slower.
  const double before = seconds_of(problem, found.blocks, found.bandwidth);
  std::vector<double> better = blocks_for(problem, found.bandwidth);
  if (seconds_of(problem, better, found.bandwidth) <= before) found.blocks = std::move(better);
  return found;
}

double kkt_residual(const PabaProblem& problem, const std::vector<double>& blocks,
                    const Bandwidths& bandwidth, bool joint) {
  const double slowest = seconds_of(problem, blocks, bandwidth);
  double worst = 0, down = 0, up = 0, least_price = INFINITY, most_price = 0;
  const auto differ = [&](double one, double other) {
    worst = std::max(worst, std::abs(one - other) / std::max(std::abs(one), std::abs(other)));
  };
  for (std::size_t group = 0; group < blocks.size(); ++group)
    for (std::size_t worker = 0; worker < problem.groups[group].size(); ++worker) {
      const Worker& one = problem.groups[group][worker];
      const Bandwidth& its = bandwidth[group][worker];
      down += its.down_hz;
      up += its.up_hz;
      if (blocks[group] <= 0) continue;
      differ(seconds_of(one, problem, blocks[group], its), slowest);
      const double price =
          its.down_hz * its.down_hz * one.efficiency_down / (its.up_hz * its.up_hz * one.efficiency_up);
      least_price = std::min(least_price, price);
      most_price = std::max(most_price, price);
    }
  differ(down, problem.bandwidth_down_hz);
  differ(up, problem.bandwidth_up_hz);
  differ(least_price, most_price);
  if (!joint) return worst;
  const Costs costs = costs_of(problem, std::sqrt(least_price * most_price));
  double least = INFINITY, most = 0;
  for (std::size_t group = 0; group < blocks.size(); ++group) {
    const double one = marginal(costs[group], blocks[group], slowest);
    if (blocks[group] > 0) most = std::max(most, one);
    least = std::min(least, one);
  }
  if (most > least) differ(least, most);
  return worst;
}

}  // namespace dear::methods::edge
