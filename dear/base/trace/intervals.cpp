#include "dear/base/trace/intervals.h"

#include <algorithm>

namespace dear::trace {

Intervals::Intervals(std::vector<Interval> parts) {
  std::erase_if(parts, [](const Interval& part) { return !(part.begin < part.end); });
  std::sort(parts.begin(), parts.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  for (const Interval& part : parts) {
    if (!parts_.empty() && part.begin <= parts_.back().end) {
      parts_.back().end = std::max(parts_.back().end, part.end);
    } else {
      parts_.push_back(part);
    }
  }
}

Intervals Intervals::united_with(const Intervals& other) const {
  std::vector<Interval> all = parts_;
  all.insert(all.end(), other.parts_.begin(), other.parts_.end());
  return Intervals(std::move(all));
}

Intervals Intervals::without(const Intervals& other) const {
  Intervals rest;
  auto hole = other.parts_.begin();
  for (const Interval& part : parts_) {
    double begin = part.begin;
    while (hole != other.parts_.end() && hole->end <= begin) ++hole;
    // A hole that reaches beyond this part may cut the next one too: go on from `hole`, not past it.
    for (auto cut = hole; cut != other.parts_.end() && cut->begin < part.end; ++cut) {
      if (begin < cut->begin) rest.parts_.push_back({begin, cut->begin});
      begin = cut->end;
    }
    if (begin < part.end) rest.parts_.push_back({begin, part.end});
  }
  return rest;
}

double Intervals::length_within(const Interval& window) const {
  auto part = std::partition_point(parts_.begin(), parts_.end(),
                                   [&](const Interval& candidate) { return candidate.end <= window.begin; });
  double length = 0;
  for (; part != parts_.end() && part->begin < window.end; ++part) {
    length += std::max(0.0, std::min(part->end, window.end) - std::max(part->begin, window.begin));
  }
  return length;
}

}  // namespace dear::trace
