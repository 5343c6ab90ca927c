#include "dear/base/trace/summary.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "dear/base/trace/intervals.h"
#include "dear/base/trace/rank_times.h"
#include "dear/base/vocabulary/units.h"

namespace dear {
namespace {

constexpr std::size_t kMostWaits = 5;
constexpr double kShortestWaitSeconds = 1e-9;  // anything less is a rounding error between two clock reads

using trace::is_wait;
using trace::is_work;
using Rank = trace::RankTimes;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// `measure(rank, window)` in seconds: the median over iterations of the mean over ranks.
template <typename Measure>
double median_of_means(const std::vector<Rank>& ranks, const std::vector<std::int64_t>& iterations,
                       Measure measure) {
  std::vector<double> means;
  for (const std::int64_t iteration : iterations) {
    double sum = 0;
    int count = 0;
    for (const Rank& rank : ranks) {
      const auto window = rank.windows.find(iteration);
      if (window == rank.windows.end()) continue;
      sum += measure(rank, window->second);
      ++count;
    }
    means.push_back(sum / count);
  }
  return median(std::move(means));
}

// Adds the rank's exposed seconds in the counted iterations by what was waited for: a wait span by its name,
// a gap by the work that it held up.
void add_waits(const Rank& rank, const std::vector<std::int64_t>& iterations,
               std::map<std::string, double>& totals) {
  const auto first = rank.windows.find(iterations.front());
  const auto last = rank.windows.find(iterations.back());
  if (first == rank.windows.end() || last == rank.windows.end()) return;
  const trace::Interval counted{first->second.begin, last->second.end};
  const auto add = [&](const std::string& name, const trace::Interval& interval) {
    const double seconds = trace::Intervals({interval}).length_within(counted);
    if (seconds > kShortestWaitSeconds) totals[name] += seconds;
  };
  std::vector<const Span*> work;
  for (const Span* span : rank.spans) {
    if (is_wait(*span)) add(span->name, {span->begin_seconds, span->end_seconds});
    if (is_work(*span) && span->begin_seconds < span->end_seconds) work.push_back(span);
  }
  std::sort(work.begin(), work.end(),
            [](const Span* a, const Span* b) { return a->begin_seconds < b->begin_seconds; });
  const trace::Intervals gaps = rank.exposed.without(rank.waits);
  for (const trace::Interval& gap : gaps.parts()) {
    const auto held_up = std::partition_point(
        work.begin(), work.end(), [&](const Span* span) { return span->begin_seconds < gap.end; });
    add(held_up == work.end() ? "at the end" : "before " + (*held_up)->name, gap);
  }
}

std::vector<TraceSummary::Slowest> slowest_waits(const std::vector<Rank>& ranks,
                                                 const std::vector<std::int64_t>& iterations) {
  if (iterations.empty()) return {};
  std::map<std::string, double> totals;
  for (const Rank& rank : ranks) add_waits(rank, iterations, totals);
  std::vector<TraceSummary::Slowest> slowest;
  const auto share = static_cast<double>(ranks.size() * iterations.size());
  for (const auto& [name, seconds] : totals)
    slowest.push_back({.name = name, .total_seconds = seconds / share});
  std::stable_sort(slowest.begin(), slowest.end(),
                   [](const auto& a, const auto& b) { return a.total_seconds > b.total_seconds; });
  slowest.resize(std::min(slowest.size(), kMostWaits));
  return slowest;
}

}  // namespace

TraceSummary summarize(const Trace& trace) {
  const std::vector<Rank> ranks = trace::ranks_of(trace);
  const std::vector<std::int64_t> iterations = trace::counted_iterations(ranks);
  const auto seconds_in = [&](trace::Intervals Rank::* what) {
    return median_of_means(ranks, iterations, [what](const Rank& rank, const trace::Interval& window) {
      return (rank.*what).length_within(window);
    });
  };
  TraceSummary summary;
  summary.ranks = static_cast<int>(ranks.size());
  summary.iterations = static_cast<std::int64_t>(trace::all_iterations(ranks).size());
  summary.iteration_seconds =
      median_of_means(ranks, iterations,
                      [](const Rank&, const trace::Interval& window) { return window.end - window.begin; });
  summary.forward_seconds = seconds_in(&Rank::forward);
  summary.backward_seconds = seconds_in(&Rank::backward);
  summary.update_seconds = seconds_in(&Rank::update);
  summary.other_seconds = seconds_in(&Rank::other);
  summary.codec_seconds = seconds_in(&Rank::codec);
  summary.communication_seconds = seconds_in(&Rank::communication);
  summary.exposed_seconds = seconds_in(&Rank::exposed);
  if (summary.communication_seconds > 0) {
    summary.hidden_fraction = std::max(0.0, 1 - summary.exposed_seconds / summary.communication_seconds);
  }
  summary.slowest_waits = slowest_waits(ranks, iterations);
  return summary;
}

std::string to_text(const TraceSummary& summary, const Trace& trace) {
  static constexpr std::string_view kRow = "{:<{}}  {:>8}{}\n";
  std::size_t width = std::string_view("  exposed communication").size();
  for (const auto& wait : summary.slowest_waits) width = std::max(width, wait.name.size() + 2);

  std::string text = fmt::format(
      "{}\nnetwork: {}\nranks: {}\niterations: {}\n\n", trace.title.empty() ? "untitled run" : trace.title,
      trace.network.empty() ? "real, not modelled" : trace.network, summary.ranks, summary.iterations);
  const auto row = [&](std::string_view name, double seconds) {
    const std::string share = summary.iteration_seconds > 0
                                  ? fmt::format("  {:>3.0f} %", 100 * seconds / summary.iteration_seconds)
                                  : "";
    text += fmt::format(kRow, name, width, format_seconds(seconds), share);
  };
  row("iteration", summary.iteration_seconds);
  row("  forward", summary.forward_seconds);
  row("  backward", summary.backward_seconds);
  row("  update", summary.update_seconds);
  if (summary.other_seconds > kShortestWaitSeconds) row("  other computation", summary.other_seconds);
  if (summary.codec_seconds > 0) row("  codec", summary.codec_seconds);
  row("communication", summary.communication_seconds);
  row("  exposed communication", summary.exposed_seconds);
  text += fmt::format(kRow, "  hidden", width, fmt::format("{:.0f} %", 100 * summary.hidden_fraction), "");
  if (!summary.slowest_waits.empty()) {
    text += "\nslowest waits, per rank and iteration\n";
    for (const auto& wait : summary.slowest_waits) row("  " + wait.name, wait.total_seconds);
  }
  return text;
}

}  // namespace dear
