#include "dear/tools/report_command/page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/trace/breakdown.h"
#include "dear/base/trace/summary.h"
#include "dear/tools/report_command/parts.h"

namespace dear::report_command {
namespace {

constexpr std::array<const char*, 7> kActivities{"forward",       "backward", "update", "codec",
                                                 "communication", "wait",     "other"};
constexpr std::size_t kMostNames = 300;

const char* word_for(Activity activity) { return kActivities.at(static_cast<std::size_t>(activity)); }

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

Json summary_of(const TraceSummary& summary) {
  Json waits = Json::array();
  for (const auto& wait : summary.slowest_waits)
    waits.push_back({{"name", wait.name}, {"seconds", wait.total_seconds}});
  return {{"ranks", summary.ranks},
          {"iterations", summary.iterations},
          {"iteration_seconds", summary.iteration_seconds},
          {"forward_seconds", summary.forward_seconds},
          {"backward_seconds", summary.backward_seconds},
          {"update_seconds", summary.update_seconds},
          {"other_seconds", summary.other_seconds},
          {"codec_seconds", summary.codec_seconds},
          {"communication_seconds", summary.communication_seconds},
          {"exposed_communication_seconds", summary.exposed_seconds},
          {"hidden_fraction", summary.hidden_fraction},
          {"slowest_waits", std::move(waits)}};
}

// Intervals as [begin, length] in nanoseconds, each begin from the begin before.
Json intervals_of(const trace::Intervals& intervals, std::int64_t origin) {
  Json numbers = Json::array();
  std::int64_t last = origin;
  for (const trace::Interval& part : intervals.parts()) {
    const std::int64_t begin = nanoseconds(part.begin);
    numbers.push_back(begin - last);
    numbers.push_back(nanoseconds(part.end) - begin);
    last = begin;
  }
  return numbers;
}

void add_breakdown(const TraceBreakdown& breakdown, std::int64_t origin, Json& trace) {
  Json ranks = Json::array();
  for (const RankBreakdown& rank : breakdown.ranks)
    ranks.push_back({{"rank", rank.rank},
                     {"iterations", rank.iterations},
                     {"iteration_seconds", rank.iteration_seconds},
                     {"computation_seconds", rank.computation_seconds},
                     {"hidden_seconds", rank.hidden_seconds},
                     {"exposed_seconds", rank.exposed_seconds},
                     {"idle_seconds", rank.idle_seconds},
                     {"communication_seconds", rank.communication_seconds},
                     {"exposed", intervals_of(rank.exposed, origin)}});
  Json collectives = Json::array();
  for (const CollectiveBreakdown& one : breakdown.collectives)
    collectives.push_back({{"name", one.name},
                           {"bucket", one.bucket < 0 ? Json(nullptr) : Json(one.bucket)},
                           {"seconds", one.seconds},
                           {"exposed_seconds", one.exposed_seconds}});
  Json names = Json::array();
  for (std::size_t i = 0; i < std::min(breakdown.names.size(), kMostNames); ++i) {
    const NamedTime& one = breakdown.names[i];
    names.push_back({{"name", one.name},
                     {"activity", word_for(one.activity)},
                     {"count", one.count},
                     {"seconds", one.seconds}});
  }
  Json stragglers = Json::array();
  for (const Straggler& one : breakdown.stragglers)
    stragglers.push_back({{"rank", one.rank}, {"slowdown", one.slowdown}});
  trace["by_rank"] = std::move(ranks);
  trace["by_collective"] = std::move(collectives);
  trace["by_name"] = std::move(names);
  trace["stragglers"] = std::move(stragglers);
}

// A lane's place among those of its rank.
int place_of(std::string_view lane) {
  constexpr std::array<std::string_view, 4> kUsual{"compute", "update", "codec", "network"};
  return static_cast<int>(std::find(kUsual.begin(), kUsual.end(), lane) - kUsual.begin());
}

// `names` and `lanes`: of each lane its spans as [begin, length, name, iteration], begin and iteration from
// those of the span before.
void add_spans(const Trace& trace, std::int64_t origin, Json& result) {
  std::map<std::pair<std::string, Activity>, std::size_t> indices;
  std::map<std::tuple<int, int, std::string>, std::vector<const Span*>> lanes;
  Json names = Json::array();
  for (const Span& span : trace.spans) {
    lanes[{span.rank, place_of(span.lane), span.lane}].push_back(&span);
    if (indices.emplace(std::pair(span.name, span.activity), names.size()).second)
      names.push_back({span.name, word_for(span.activity)});
  }
  Json all = Json::array();
  for (auto& [lane, spans] : lanes) {
    std::stable_sort(spans.begin(), spans.end(), [](const Span* a, const Span* b) {
      return a->begin_seconds != b->begin_seconds ? a->begin_seconds < b->begin_seconds
                                                  : a->end_seconds > b->end_seconds;
    });
    Json numbers = Json::array();
    std::int64_t last = origin;
    std::int64_t iteration = 0;
    for (const Span* span : spans) {
      const std::int64_t begin = nanoseconds(span->begin_seconds);
      numbers.push_back(begin - last);
      numbers.push_back(nanoseconds(span->end_seconds) - begin);
      numbers.push_back(indices.at({span->name, span->activity}));
      numbers.push_back(span->iteration - iteration);
      last = begin;
      iteration = span->iteration;
    }
    all.push_back({{"rank", std::get<0>(lane)}, {"lane", std::get<2>(lane)}, {"spans", std::move(numbers)}});
  }
  result["names"] = std::move(names);
  result["lanes"] = std::move(all);
}

Json trace_of(const Run& run) {
  const Trace& trace = *run.trace;
  double first = trace.spans.front().begin_seconds;
  for (const Span& span : trace.spans) first = std::min(first, span.begin_seconds);
  const std::int64_t origin = nanoseconds(first);
  Json result{{"title", trace.title},
              {"network", trace.network},
              {"of_profiler", run.of_profiler},
              {"summary", summary_of(summarize(trace))}};
  add_breakdown(break_down(trace), origin, result);
  add_spans(trace, origin, result);
  return result;
}

// `text` for a script element: no "</script>" and no "<!--" can stand in it.
std::string escaped(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) c == '<' ? result += "\\u003c" : result += c;
  return result;
}

std::string html_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '&':
        result += "&amp;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

struct Part {
  std::string_view mark;
  std::string_view text;
};

// `page` with each mark, in this order, replaced. What is put in is not looked at, so it may hold anything.
std::string assembled(std::string_view page, std::initializer_list<Part> parts) {
  std::string result;
  for (const Part& part : parts) {
    const std::size_t place = page.find(part.mark);
    result.append(page.substr(0, place)).append(part.text);
    page.remove_prefix(place + part.mark.size());
  }
  return result.append(page);
}

}  // namespace

Json data_of(const Runs& runs, const std::string& title) {
  Json all = Json::array();
  for (const Run& run : runs.runs()) {
    Json one{{"name", run.name}, {"sources", run.sources}};
    if (run.trace) one["trace"] = trace_of(run);
    if (!run.metrics.empty()) one["metrics"] = run.metrics;
    if (run.results) one["results"] = *run.results;
    all.push_back(std::move(one));
  }
  return {{"format", "dear-report"},
          {"version", 1},
          {"dear_version", DEAR_VERSION},
          {"title", title},
          {"runs", std::move(all)}};
}

std::string page_of(const Runs& runs, const std::string& title) {
  const std::string data = data_of(runs, title).dump(-1, ' ', false, Json::error_handler_t::replace);
  return assembled(kPage, {{"{{title}}", html_escaped(title.empty() ? "Report of DeAR" : title)},
                           {"{{style}}", kStyle},
                           {"{{licence}}", html_escaped(kChartsLicence)},
                           {"{{charts}}", kCharts},
                           {"{{script}}", kScript},
                           {"{{data}}", escaped(data)}});
}

}  // namespace dear::report_command
