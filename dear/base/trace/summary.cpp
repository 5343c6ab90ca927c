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
#include "dear/base/vocabulary/units.h"

// [Note: what is counted] For each rank, on the rank's own spans:
// - The window of an iteration begins with the first work of that iteration on the lane "compute", and
//   ends where the window of the next iteration begins. The last window ends with the rank's last span.
//   Everything below is measured in windows, whichever iteration a span belongs to: an all-gather under
//   the next forward counts there.
// - Work on the compute lane is every span that is neither a wait nor communication, without the waits on
//   that lane: a live forward span contains the waits for its parameters, in which nothing is computed.
// - Communication is the time in which at least one communication span runs, on any lane.
// - Exposed communication is the time without work on the compute lane in which communication runs or the
//   compute lane waits. A live trace shows it as wait spans, a simulated one as gaps under which the
//   network works. A wait counts even if this rank sends and receives nothing: then it waits for a slower
//   rank. An idle gap with neither is not exposed.
// - An update on a lane of its own is no work of the compute lane, because it may run while that lane
//   waits.
namespace dear {
namespace {

constexpr std::string_view kComputeLane = "compute";
constexpr std::size_t kMostWaits = 5;
constexpr double kShortestWaitSeconds = 1e-9;  // anything less is a rounding error between two clock reads

bool on_compute_lane(const Span& span) { return span.lane == kComputeLane; }
bool is_work(const Span& span) {
  return on_compute_lane(span) && span.activity != Activity::wait && span.activity != Activity::communication;
}
bool is_wait(const Span& span) { return on_compute_lane(span) && span.activity == Activity::wait; }

template <typename Keep>
trace::Intervals intervals_of(const std::vector<const Span*>& spans, Keep keep) {
  std::vector<trace::Interval> parts;
  for (const Span* span : spans) {
    if (keep(*span)) parts.push_back({span->begin_seconds, span->end_seconds});
  }
  return trace::Intervals(std::move(parts));
}

using Windows = std::map<std::int64_t, trace::Interval>;

Windows windows_of(const std::vector<const Span*>& spans) {
  std::map<std::int64_t, double> begins;
  double last_end = -std::numeric_limits<double>::infinity();
  for (const Span* span : spans) {
    last_end = std::max(last_end, span->end_seconds);
    if (span->iteration < 0 || !is_work(*span)) continue;
    const auto [found, is_new] = begins.emplace(span->iteration, span->begin_seconds);
    if (!is_new) found->second = std::min(found->second, span->begin_seconds);
  }
  Windows windows;
  for (auto begin = begins.begin(); begin != begins.end(); ++begin) {
    const auto next = std::next(begin);
    windows[begin->first] = {begin->second, next == begins.end() ? last_end : next->second};
  }
  return windows;
}

// One rank, with the sets of instants that [Note: what is counted] defines.
struct Rank {
  std::vector<const Span*> spans;
  Windows windows;
  trace::Intervals forward, backward, update, other, codec, communication, waits, exposed;

  explicit Rank(std::vector<const Span*> of_rank) : spans(std::move(of_rank)), windows(windows_of(spans)) {
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
    const trace::Intervals work = intervals_of(spans, is_work).without(waits);
    exposed = communication.united_with(waits).without(work);
  }
};

std::vector<Rank> ranks_of(const Trace& trace) {
  std::map<int, std::vector<const Span*>> spans;
  for (const Span& span : trace.spans) spans[span.rank].push_back(&span);
  std::vector<Rank> ranks;
  for (auto& [rank, of_rank] : spans) ranks.emplace_back(std::move(of_rank));
  return ranks;
}

std::vector<std::int64_t> all_iterations(const std::vector<Rank>& ranks) {
  std::set<std::int64_t> iterations;
  for (const Rank& rank : ranks) {
    for (const auto& [iteration, window] : rank.windows) iterations.insert(iteration);
  }
  return {iterations.begin(), iterations.end()};
}

// Without the first and the last, which start and end cold, when enough are left.
std::vector<std::int64_t> counted_iterations(const std::vector<Rank>& ranks) {
  std::vector<std::int64_t> iterations = all_iterations(ranks);
  if (iterations.size() > 3) {
    iterations.pop_back();
    iterations.erase(iterations.begin());
  }
  return iterations;
}

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
  const std::vector<Rank> ranks = ranks_of(trace);
  const std::vector<std::int64_t> iterations = counted_iterations(ranks);
  const auto seconds_in = [&](trace::Intervals Rank::* what) {
    return median_of_means(ranks, iterations, [what](const Rank& rank, const trace::Interval& window) {
      return (rank.*what).length_within(window);
    });
  };
  TraceSummary summary;
  summary.ranks = static_cast<int>(ranks.size());
  summary.iterations = static_cast<std::int64_t>(all_iterations(ranks).size());
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
