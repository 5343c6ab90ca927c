#include "dear/predict/balance/shard_weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

using Shares = std::vector<double>;
constexpr int kHalvings = 42;

struct Bounds {
  Shares least, most;
};

// The least number for which a monotone condition holds, from `low`, where it may not, to `high`, where it
// does.
template <typename Holds>
double least_that(double low, double high, Holds holds) {
  if (holds(low)) return low;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

// Where a convex function is least, by golden sections.
template <typename Function>
double minimum_of(double low, double high, Function of) {
  constexpr double kGolden = 0.6180339887498949;
  double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
  double of_a = of(a), of_b = of(b);
  for (int i = 0; i < kHalvings; ++i) {
    if (of_a <= of_b) {
      high = std::exchange(b, a);
      of_b = of_a;
      a = high - kGolden * (high - low);
      of_a = of(a);
    } else {
      low = std::exchange(a, b);
      of_a = of_b;
      b = low + kGolden * (high - low);
      of_b = of(b);
    }
  }
  return of(low) <= of_a ? low : (of_a <= of_b ? a : b);
}

bool has_shares(const Bounds& bounds) {
  double least = 0, most = 0;
  for (std::size_t rank = 0; rank < bounds.least.size(); ++rank) {
    if (bounds.least[rank] > bounds.most[rank]) return false;
    least += bounds.least[rank];
    most += bounds.most[rank];
  }
  return least <= 1 && most >= 1;
}

// Shares of sum 1 within the bounds, as nearly in proportion to `speeds` as they allow.
Shares fill(const Bounds& bounds, const Shares& speeds) {
  const auto share = [&](double level, std::size_t rank) {
    return std::clamp(level * speeds[rank], bounds.least[rank], bounds.most[rank]);
  };
  const double level = least_that(0, 1 / *std::min_element(speeds.begin(), speeds.end()), [&](double one) {
    double sum = 0;
    for (std::size_t rank = 0; rank < speeds.size(); ++rank) sum += share(one, rank);
    return sum >= 1;
  });
  Shares shares;
  for (std::size_t rank = 0; rank < speeds.size(); ++rank) shares.push_back(share(level, rank));
  return shares;
}

Shares update_speeds(const std::vector<RankSpeed>& ranks) {
  Shares speeds;
  bool finite = true;
  for (const RankSpeed& rank : ranks) finite = finite && std::isfinite(rank.update);
  for (const RankSpeed& rank : ranks) speeds.push_back(finite ? rank.update : 1);
  const double all = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  for (double& speed : speeds) speed /= all;
  return speeds;
}

// The shares within which a reduction takes `reduce` seconds and a gather `gather`.
Bounds bounds_of(const std::vector<RankSpeed>& ranks, double reduce, double gather) {
  const double others = static_cast<double>(ranks.size()) - 1;
  Bounds bounds;
  for (const RankSpeed& rank : ranks) {
    bounds.least.push_back(std::max({0.0, 1 - reduce * rank.send, 1 - gather * rank.receive}));
    bounds.most.push_back(std::min({1.0, reduce * rank.receive / others, gather * rank.send / others}));
  }
  return bounds;
}

// The times of the three parts add up, and each is the longest of all ranks: so for given times of the
// reduction and the gather the shares have bounds, and the update takes least where they are in proportion to
// its speeds. Their sum is convex in both times.
Shares plan_scattered(const std::vector<RankSpeed>& ranks, double most_seconds) {
  const Shares speeds = update_speeds(ranks);
  const auto update_seconds = [&](const Shares& shares) {
    double seconds = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      seconds = std::max(seconds, shares[rank] / ranks[rank].update);
    return seconds;
  };
  const auto least_gather = [&](double reduce) {
    return least_that(0, most_seconds,
                      [&](double gather) { return has_shares(bounds_of(ranks, reduce, gather)); });
  };
  const auto best_gather = [&](double reduce) {
    return minimum_of(least_gather(reduce), most_seconds, [&](double gather) {
      return gather + update_seconds(fill(bounds_of(ranks, reduce, gather), speeds));
    });
  };
  const double least = least_that(
      0, most_seconds, [&](double reduce) { return has_shares(bounds_of(ranks, reduce, most_seconds)); });
  const double reduce = minimum_of(least, most_seconds, [&](double one) {
    const double gather = best_gather(one);
    return one + gather + update_seconds(fill(bounds_of(ranks, one, gather), speeds));
  });
  return fill(bounds_of(ranks, reduce, best_gather(reduce)), speeds);
}

Shares plan_all_reduced(const std::vector<RankSpeed>& ranks, double most_seconds) {
  const double between = static_cast<double>(ranks.size()) - 2;
  const auto bounds_within = [&](double seconds) {
    Bounds bounds{.least = Shares(ranks.size()), .most = {}};
    for (const RankSpeed& rank : ranks)
      bounds.most.push_back(
          std::clamp((seconds * std::min(rank.send, rank.receive) - 1) / between, -1.0, 1.0));
    return bounds;
  };
  const double seconds =
      least_that(0, most_seconds, [&](double one) { return has_shares(bounds_within(one)); });
  return fill(bounds_within(seconds), Shares(ranks.size(), 1.0 / static_cast<double>(ranks.size())));
}

}  // namespace

double seconds_of_shards(const std::vector<RankSpeed>& ranks, const std::vector<double>& weights,
                         ShardUse use) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double others = static_cast<double>(ranks.size()) - 1;
  double reduce = 0, gather = 0, update = 0, both = 0, whole = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankSpeed& rank = ranks[i];
    const double share = weights[i] / all;
    reduce = std::max({reduce, (1 - share) / rank.send, others * share / rank.receive});
    gather = std::max({gather, others * share / rank.send, (1 - share) / rank.receive});
    both = std::max(both, (1 + (others - 1) * share) / std::min(rank.send, rank.receive));
    update = std::max(update, share / rank.update);
    whole = std::max(whole, 1 / rank.update);
  }
  if (ranks.size() == 1) return whole;
  return use == ShardUse::scattered ? reduce + update + gather : both + whole;
}

ShardPlan plan_shards(const std::vector<RankSpeed>& ranks, ShardUse use) {
  if (ranks.empty()) throw ConfigError("no rank to plan shards for: give the speeds of one at least");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (!(ranks[rank].send > 0) || !(ranks[rank].receive > 0) || !(ranks[rank].update > 0))
      throw ConfigError(
          fmt::format("rank {} sends {}, receives {} and updates {} bytes a second: give speeds above 0",
                      rank, ranks[rank].send, ranks[rank].receive, ranks[rank].update));
  const Shares equal(ranks.size(), 1 / static_cast<double>(ranks.size()));
  ShardPlan plan{.weights = equal, .equal_seconds = seconds_of_shards(ranks, equal, use)};
  plan.seconds = plan.equal_seconds;
  if (ranks.size() == 1 || (ranks.size() == 2 && use == ShardUse::all_reduced) || plan.equal_seconds == 0)
    return plan;
  Shares found = use == ShardUse::scattered ? plan_scattered(ranks, plan.equal_seconds)
                                            : plan_all_reduced(ranks, plan.equal_seconds);
  const double all = std::accumulate(found.begin(), found.end(), 0.0);
  for (double& share : found) share /= all;
  const double seconds = seconds_of_shards(ranks, found, use);
  if (seconds < plan.seconds * (1 - 1e-9)) {
    plan.weights = std::move(found);
    plan.seconds = seconds;
  }
  return plan;
}

}  // namespace dear
