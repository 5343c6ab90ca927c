#include "dear/kfac/fusion.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace dear::kfac {

double finish_seconds(const std::vector<ReadyFactor>& factors, const Groups& groups, const LinearCost& cost) {
  double ready = 0, free = 0;
  std::size_t factor = 0;
  for (const std::size_t size : groups) {
    std::int64_t elements = 0;
    for (const std::size_t end = factor + size; factor < end; ++factor) {
      ready += factors.at(factor).seconds_until_ready;
      elements += factors[factor].elements;
    }
    free = std::max(free, ready) + cost.seconds(elements);
  }
  return std::max(free, ready);
}

Groups each_alone(std::size_t factors) { return Groups(factors, 1); }

Groups all_together(std::size_t factors) { return factors == 0 ? Groups{} : Groups{factors}; }

Groups by_threshold(const std::vector<ReadyFactor>& factors, std::int64_t elements) {
  Groups groups;
  std::int64_t gathered = 0;
  std::size_t size = 0;
  for (const ReadyFactor& factor : factors) {
    gathered += factor.elements;
    ++size;
    if (gathered < elements) continue;
    groups.push_back(std::exchange(size, 0));
    gathered = 0;
  }
  if (size > 0) groups.push_back(size);
  return groups;
}

Groups fuse_by_rule(const std::vector<ReadyFactor>& factors, const LinearCost& cost) {
  Groups groups;
  double ready = 0;  // of this factor
  double free = 0;   // when what was closed before has travelled
  std::int64_t elements = 0;
  std::size_t size = 0;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    ready += factors[i].seconds_until_ready;
    elements += factors[i].elements;
    ++size;
    const double start = std::max(free, ready);
    const double end = start + cost.seconds(elements);
    if (i + 1 < factors.size()) {
      const double next_ready = ready + factors[i + 1].seconds_until_ready;
      if (next_ready < end && (start > next_ready || next_ready - start < cost.start_seconds)) continue;
    }
    groups.push_back(std::exchange(size, 0));
    free = end;
    elements = 0;
  }
  return groups;
}

Groups fuse_exactly(const std::vector<ReadyFactor>& factors, const LinearCost& cost) {
  struct Best {
    double end = 0;
    std::size_t groups = 0;
    std::size_t from = 0;  // where the last group begins
  };
  std::vector<Best> best(factors.size() + 1);  // by border
  double ready = 0;
  for (std::size_t border = 1; border <= factors.size(); ++border) {
    ready += factors[border - 1].seconds_until_ready;
    Best& here = best[border];
    here.end = std::numeric_limits<double>::infinity();
    std::int64_t elements = 0;
    for (std::size_t from = border; from-- > 0;) {
      elements += factors[from].elements;
      const double end = std::max(best[from].end, ready) + cost.seconds(elements);
      const std::size_t groups = best[from].groups + 1;
      if (end < here.end || (end == here.end && groups < here.groups)) here = {end, groups, from};
    }
  }
  Groups groups;
  for (std::size_t border = factors.size(); border > 0; border = best[border].from)
    groups.push_back(border - best[border].from);
  std::reverse(groups.begin(), groups.end());
  return groups;
}

}  // namespace dear::kfac
