#include "dear/base/trace/rank_times.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

namespace dear::trace {
namespace {

constexpr std::string_view kComputeLane = "compute";

template <typename Keep>
Intervals intervals_of(const std::vector<const Span*>& spans, Keep keep) {
  std::vector<Interval> parts;
  for (const Span* span : spans) {
    if (keep(*span)) parts.push_back({span->begin_seconds, span->end_seconds});
  }
  return Intervals(std::move(parts));
}

std::map<std::int64_t, Interval> windows_of(const std::vector<const Span*>& spans) {
  std::map<std::int64_t, double> begins;
  double last_end = -std::numeric_limits<double>::infinity();
  for (const Span* span : spans) {
    last_end = std::max(last_end, span->end_seconds);
    if (span->iteration < 0 || !is_work(*span)) continue;
    const auto [found, is_new] = begins.emplace(span->iteration, span->begin_seconds);
    if (!is_new) found->second = std::min(found->second, span->begin_seconds);
  }
  std::map<std::int64_t, Interval> windows;
  for (auto begin = begins.begin(); begin != begins.end(); ++begin) {
    const auto next = std::next(begin);
    windows[begin->first] = {begin->second, next == begins.end() ? last_end : next->second};
  }
  return windows;
}

}  // namespace

bool on_compute_lane(const Span& span) { return span.lane == kComputeLane; }
bool is_work(const Span& span) {
  return on_compute_lane(span) && span.activity != Activity::wait && span.activity != Activity::communication;
}
bool is_wait(const Span& span) { return on_compute_lane(span) && span.activity == Activity::wait; }

RankTimes::RankTimes(std::vector<const Span*> of_rank)
    : rank(of_rank.front()->rank), spans(std::move(of_rank)), windows(windows_of(spans)) {
  waits = intervals_of(spans, is_wait);
  const auto on_compute = [&](Activity activity) {
    return intervals_of(spans, [&](const Span& s) { return on_compute_lane(s) && s.activity == activity; })
        .without(waits);
  };
  forward = on_compute(Activity::forward);
  backward = on_compute(Activity::backward);
  update = on_compute(Activity::update).united_with(intervals_of(spans, [](const Span& s) {
    return !on_compute_lane(s) && s.activity == Activity::update;
  }));
  other = on_compute(Activity::other);
  codec = intervals_of(spans, [](const Span& s) { return s.activity == Activity::codec; });
  communication = intervals_of(spans, [](const Span& s) { return s.activity == Activity::communication; });
  work = intervals_of(spans, is_work).without(waits);
  exposed = communication.united_with(waits).without(work);
}

std::vector<RankTimes> ranks_of(const Trace& trace) {
  std::map<int, std::vector<const Span*>> spans;
  for (const Span& span : trace.spans) spans[span.rank].push_back(&span);
  std::vector<RankTimes> ranks;
  for (auto& [rank, of_rank] : spans) ranks.emplace_back(std::move(of_rank));
  return ranks;
}

std::vector<std::int64_t> all_iterations(const std::vector<RankTimes>& ranks) {
  std::set<std::int64_t> iterations;
  for (const RankTimes& rank : ranks) {
    for (const auto& [iteration, window] : rank.windows) iterations.insert(iteration);
  }
  return {iterations.begin(), iterations.end()};
}

std::vector<std::int64_t> counted_iterations(const std::vector<RankTimes>& ranks) {
  std::vector<std::int64_t> iterations = all_iterations(ranks);
  if (iterations.size() > 3) {
    iterations.pop_back();
    iterations.erase(iterations.begin());
  }
  return iterations;
}

}  // namespace dear::trace
