#include "dear/methods/kfac/fusion.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace dear::methods::kfac {

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

Groups by_cycle(const std::vector<ReadyFactor>& factors, double cycle_seconds, std::int64_t elements) {
  Groups groups;
  double ready = 0, cycle = 0;  // the number of the cycle that the group belongs to
  std::int64_t gathered = 0;
  std::size_t size = 0;
  for (const ReadyFactor& factor : factors) {
    ready += factor.seconds_until_ready;
    const double seen = std::ceil(ready / cycle_seconds);
    if (size > 0 && (seen > cycle || gathered + factor.elements > elements)) {
      groups.push_back(std::exchange(size, 0));
      gathered = 0;
    }
    cycle = seen;
    gathered += factor.elements;
    ++size;
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
  const std::size_t count = factors.size();
  std::vector<double> ready(count + 1);           // by border: of the factor before it
  std::vector<std::int64_t> elements(count + 1);  // of all factors before it
  for (std::size_t i = 0; i < count; ++i) {
    ready[i + 1] = ready[i] + factors[i].seconds_until_ready;
    elements[i + 1] = elements[i] + factors[i].elements;
  }
  const auto end_of = [&](double before, std::size_t from, std::size_t border) {
    return std::max(before, ready[border]) + cost.seconds(elements[border] - elements[from]);
  };
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<double> ends(count + 1, kNever);  // by border, with any number of groups
  ends[0] = 0;
  for (std::size_t border = 1; border <= count; ++border)
    for (std::size_t from = 0; from < border; ++from)
      ends[border] = std::min(ends[border], end_of(ends[from], from, border));
  // Does the same with one group, with two, and so on, until the end is as early.
  const double enough = ends[count] * (1 + 1e-12);
  std::vector<std::vector<std::size_t>> last;  // by number of groups, by border: where the last group begins
  std::vector<double> before(count + 1, kNever);
  before[0] = 0;
  while (before[count] > enough) {
    std::vector<std::size_t>& begins = last.emplace_back(count + 1);
    std::vector<double> after(count + 1, kNever);
    for (std::size_t border = last.size(); border <= count; ++border)
      for (std::size_t from = last.size() - 1; from < border; ++from) {
        const double end = end_of(before[from], from, border);
        if (end < after[border]) {
          after[border] = end;
          begins[border] = from;
        }
      }
    before = std::move(after);
  }
  Groups groups;
  std::size_t border = count;
  for (; !last.empty(); last.pop_back()) {
    groups.push_back(border - last.back()[border]);
    border = last.back()[border];
  }
  std::reverse(groups.begin(), groups.end());
  return groups;
}

}  // namespace dear::methods::kfac
