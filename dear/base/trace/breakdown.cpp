#include "dear/base/trace/breakdown.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "dear/base/trace/rank_times.h"

namespace dear {
namespace {

using trace::Interval;
using trace::Intervals;
using trace::RankTimes;

Intervals common(const Intervals& one, const Intervals& other) { return one.without(one.without(other)); }

// The windows of a rank's counted iterations, which follow each other.
std::vector<Interval> counted_windows(const RankTimes& rank, const std::vector<std::int64_t>& iterations) {
  std::vector<Interval> windows;
  for (const std::int64_t iteration : iterations) {
    if (const auto found = rank.windows.find(iteration); found != rank.windows.end())
      windows.push_back(found->second);
  }
  return windows;
}

double length_in(const Intervals& intervals, const std::vector<Interval>& windows) {
  double seconds = 0;
  for (const Interval& window : windows) seconds += intervals.length_within(window);
  return seconds;
}

RankBreakdown rank_of(const RankTimes& rank, const std::vector<Interval>& windows) {
  RankBreakdown result{.rank = rank.rank, .iterations = static_cast<std::int64_t>(windows.size())};
  result.exposed = rank.exposed;
  if (windows.empty()) return result;
  const auto count = static_cast<double>(windows.size());
  double whole = 0;
  for (const Interval& window : windows) whole += window.end - window.begin;
  const double work = length_in(rank.work, windows);
  const double hidden = length_in(common(rank.communication, rank.work), windows);
  const double exposed = length_in(rank.exposed, windows);
  result.iteration_seconds = whole / count;
  result.computation_seconds = (work - hidden) / count;
  result.hidden_seconds = hidden / count;
  result.exposed_seconds = exposed / count;
  result.idle_seconds = std::max(0.0, whole - work - exposed) / count;
  result.communication_seconds = length_in(rank.communication, windows) / count;
  return result;
}

// N of "reduce-scatter bucket N", else -1.
std::int64_t bucket_in(std::string_view name) {
  constexpr std::string_view kWord = "bucket ";
  const std::size_t place = name.find(kWord);
  if (place == std::string_view::npos) return -1;
  std::int64_t bucket = -1;
  const std::string_view digits = name.substr(place + kWord.size());
  std::from_chars(digits.data(), digits.data() + digits.size(), bucket);
  return bucket;
}

struct Collective {
  double seconds = 0, exposed = 0;
};
using Collectives = std::map<std::string, Collective>;
struct Named {
  double count = 0, seconds = 0;
};
using Names = std::map<std::pair<std::string, Activity>, Named>;

void add_collectives(const RankTimes& rank, const std::vector<Interval>& windows, Collectives& all) {
  std::map<std::string, std::vector<Interval>> by_name;
  for (const Span* span : rank.spans) {
    if (span->activity == Activity::communication)
      by_name[span->name].push_back({span->begin_seconds, span->end_seconds});
  }
  for (auto& [name, parts] : by_name) {
    const Intervals intervals(std::move(parts));
    Collective& collective = all[name];
    collective.seconds += length_in(intervals, windows);
    collective.exposed += length_in(intervals.without(rank.work), windows);
  }
}

void add_names(const RankTimes& rank, const std::vector<Interval>& windows, Names& all) {
  if (windows.empty()) return;
  const Interval counted{windows.front().begin, windows.back().end};
  for (const Span* span : rank.spans) {
    if (span->begin_seconds < counted.begin || span->begin_seconds >= counted.end) continue;
    Named& named = all[{span->name, span->activity}];
    named.count += 1;
    named.seconds += span->end_seconds - span->begin_seconds;
  }
}

std::vector<Straggler> stragglers_in(const std::vector<RankBreakdown>& ranks) {
  if (ranks.size() < 2) return {};
  const auto work_of = [](const RankBreakdown& rank) {
    return rank.computation_seconds + rank.hidden_seconds;
  };
  std::vector<double> works;
  for (const RankBreakdown& rank : ranks) works.push_back(work_of(rank));
  std::sort(works.begin(), works.end());
  const std::size_t middle = works.size() / 2;
  const double median = works.size() % 2 == 1 ? works[middle] : (works[middle - 1] + works[middle]) / 2;
  std::vector<Straggler> stragglers;
  for (const RankBreakdown& rank : ranks) {
    if (median > 0 && work_of(rank) >= kStraggles * median)
      stragglers.push_back({.rank = rank.rank, .slowdown = work_of(rank) / median});
  }
  std::stable_sort(stragglers.begin(), stragglers.end(),
                   [](const Straggler& a, const Straggler& b) { return a.slowdown > b.slowdown; });
  return stragglers;
}

}  // namespace

TraceBreakdown break_down(const Trace& trace) {
  const std::vector<RankTimes> ranks = trace::ranks_of(trace);
  const std::vector<std::int64_t> iterations = trace::counted_iterations(ranks);
  TraceBreakdown result;
  Collectives collectives;
  Names names;
  double share = 0;  // windows of all ranks
  for (const RankTimes& rank : ranks) {
    const std::vector<Interval> windows = counted_windows(rank, iterations);
    result.ranks.push_back(rank_of(rank, windows));
    add_collectives(rank, windows, collectives);
    add_names(rank, windows, names);
    share += static_cast<double>(windows.size());
  }
  if (share > 0) {
    for (const auto& [name, collective] : collectives)
      result.collectives.push_back({.name = name,
                                    .bucket = bucket_in(name),
                                    .seconds = collective.seconds / share,
                                    .exposed_seconds = collective.exposed / share});
    for (const auto& [key, named] : names)
      result.names.push_back({.name = key.first,
                              .activity = key.second,
                              .count = named.count / share,
                              .seconds = named.seconds / share});
  }
  std::stable_sort(result.collectives.begin(), result.collectives.end(), [](const auto& a, const auto& b) {
    return std::tie(a.bucket, a.name) < std::tie(b.bucket, b.name);
  });
  std::stable_sort(result.names.begin(), result.names.end(),
                   [](const NamedTime& a, const NamedTime& b) { return a.seconds > b.seconds; });
  result.stragglers = stragglers_in(result.ranks);
  return result;
}

}  // namespace dear
