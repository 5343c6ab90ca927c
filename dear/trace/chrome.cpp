// Whether diagnostics are on is part of the library's inline namespace, so no other source is affected.
#define JSON_DIAGNOSTICS 1

#include "dear/trace/chrome.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/atomic_file.h"
#include "dear/base/error.h"
#include "dear/document/json_field.h"

// The file, as the Trace Event Format has it
// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU):
//   traceEvents      "M" events name each process ("rank 3") and each thread (its lane) and give their order;
//                    "X" events are the spans: pid is the rank, tid the lane, cat the activity,
//                    ts and dur microseconds, with thousandths
//     args           activity, iteration, step: as in Span, -1 for none
//   displayTimeUnit  "ms"
//   otherData        format "dear-trace", version 1, title, network: as in Trace
namespace dear {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "dear-trace";
constexpr int kVersion = 1;
constexpr std::array<std::string_view, 7> kActivities{"forward",       "backward", "update", "codec",
                                                      "communication", "wait",     "other"};

Activity parse_activity(const std::string& name) {
  const auto found = std::find(kActivities.begin(), kActivities.end(), name);
  if (found == kActivities.end()) throw ConfigError(fmt::format("there is no activity '{}'", name));
  return static_cast<Activity>(found - kActivities.begin());
}

// [Note: whole nanoseconds] Begin and end are each rounded to a nanosecond, and the duration is the
// difference of the two. Rounding keeps order, so spans that did not overlap do not overlap in the file
// either, which rounding a duration by itself would not give.
std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
double microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }
std::int64_t nanoseconds_of_microseconds(double microseconds) { return std::llround(microseconds * 1e3); }

// A lane has the same thread number on every rank; the lanes of a usual run stand in the order of the
// picture.
std::map<std::string, int> numbers_of_lanes(const Trace& trace) {
  std::vector<std::string> order{"compute", "update", "network"};
  std::set<std::string> present;
  for (const Span& span : trace.spans) {
    present.insert(span.lane);
    if (std::find(order.begin(), order.end(), span.lane) == order.end()) order.push_back(span.lane);
  }
  std::map<std::string, int> numbers;
  for (const std::string& lane : order) {
    if (present.contains(lane)) numbers.emplace(lane, static_cast<int>(numbers.size()));
  }
  return numbers;
}

Json metadata(const char* what, int rank, int thread, Json args) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", std::move(args)}};
}

std::vector<Json> metadata_of(const Trace& trace, const std::map<std::string, int>& threads) {
  std::set<std::pair<int, int>> present;
  std::map<int, std::string> lanes;
  for (const auto& [lane, thread] : threads) lanes.emplace(thread, lane);
  for (const Span& span : trace.spans) present.emplace(span.rank, threads.at(span.lane));
  std::vector<Json> events;
  int last_rank = -1;
  for (const auto& [rank, thread] : present) {
    if (events.empty() || rank != last_rank) {
      events.push_back(metadata("process_name", rank, thread, {{"name", fmt::format("rank {}", rank)}}));
      events.push_back(metadata("process_sort_index", rank, thread, {{"sort_index", rank}}));
    }
    last_rank = rank;
    events.push_back(metadata("thread_name", rank, thread, {{"name", lanes.at(thread)}}));
    events.push_back(metadata("thread_sort_index", rank, thread, {{"sort_index", thread}}));
  }
  return events;
}

Json event_of(const Span& span, int thread) {
  const std::string_view activity = kActivities.at(static_cast<std::size_t>(span.activity));
  const std::int64_t begin = nanoseconds(span.begin_seconds);
  const std::int64_t end = nanoseconds(span.end_seconds);
  return {{"ph", "X"},
          {"name", span.name},
          {"cat", activity},
          {"pid", span.rank},
          {"tid", thread},
          {"ts", microseconds(begin)},
          {"dur", microseconds(end - begin)},
          {"args", {{"activity", activity}, {"iteration", span.iteration}, {"step", span.step}}}};
}

// A name that is not UTF-8 is no reason to lose a trace: its stray bytes become U+FFFD.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Span span_of(const Json& event, const std::map<std::pair<int, int>, std::string>& lanes) {
  Span span;
  span.rank = event.at("pid").get<int>();
  const int thread = event.at("tid").get<int>();
  const auto lane = lanes.find({span.rank, thread});
  if (lane == lanes.end()) {
    throw ConfigError(fmt::format("no thread_name event names thread {} of process {}", thread, span.rank));
  }
  span.lane = lane->second;
  span.name = event.at("name").get<std::string>();
  const Json& args = event.at("args");
  span.activity = parse_activity(args.at("activity").get<std::string>());
  span.iteration = args.at("iteration").get<std::int64_t>();
  span.step = args.at("step").get<std::int64_t>();
  const std::int64_t begin = nanoseconds_of_microseconds(event.at("ts").get<double>());
  const std::int64_t length = nanoseconds_of_microseconds(event.at("dur").get<double>());
  if (length < 0) throw ConfigError("dur is negative");
  span.begin_seconds = static_cast<double>(begin) / 1e9;
  span.end_seconds = static_cast<double>(begin + length) / 1e9;
  return span;
}

// nlohmann's texts begin with "[json.exception.type_error.302] ".
std::string without_tag(std::string_view message) {
  const std::size_t end = message.starts_with('[') ? message.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? message : message.substr(end + 2));
}

Trace trace_of(const Json& document) {
  if (!document.is_object()) throw ConfigError("it is no JSON object");
  const Json& other = document.at("otherData");
  if (other.at("format") != kFormat || other.at("version") != kVersion) {
    throw ConfigError(fmt::format("otherData is of format {}, version {}", dump(other.at("format")),
                                  dump(other.at("version"))));
  }
  Trace trace;
  trace.title = other.at("title").get<std::string>();
  trace.network = other.at("network").get<std::string>();
  std::map<std::pair<int, int>, std::string> lanes;
  const Json& events = document.at("traceEvents");
  for (const Json& event : events) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name") {
      lanes[{event.at("pid").get<int>(), event.at("tid").get<int>()}] =
          event.at("args").at("name").get<std::string>();
    }
  }
  for (std::size_t e = 0; e < events.size(); ++e) {
    if (events[e].at("ph") == "M") continue;
    try {
      if (events[e].at("ph") != "X") throw ConfigError(fmt::format("ph is {}", dump(events[e].at("ph"))));
      trace.spans.push_back(span_of(events[e], lanes));
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("traceEvents[{}]: {}", e, error.what()));
    }
  }
  return trace;
}

}  // namespace

std::string to_chrome_json(const Trace& trace) {
  const std::map<std::string, int> threads = numbers_of_lanes(trace);
  std::string events;
  const auto add = [&events](const Json& event) { events += (events.empty() ? "\n" : ",\n") + dump(event); };
  for (const Json& event : metadata_of(trace, threads)) add(event);
  for (const Span& span : trace.spans) add(event_of(span, threads.at(span.lane)));
  const Json other{
      {"format", kFormat}, {"version", kVersion}, {"title", trace.title}, {"network", trace.network}};
  return fmt::format("{{\"traceEvents\": [{}\n],\n\"displayTimeUnit\": \"ms\",\n\"otherData\": {}}}\n",
                     events, dump(other));
}

void write_chrome_trace(const Trace& trace, const std::string& path) {
  write_file_atomically(path, to_chrome_json(trace));
}

Trace read_chrome_trace(const std::string& path) {
  const std::string text = read_file(path);
  std::string why;
  try {
    require_shallow(text);
    return trace_of(Json::parse(text));
  } catch (const Json::exception& error) {
    why = without_tag(error.what());
  } catch (const ConfigError& error) {
    why = error.what();
  }
  throw ConfigError(fmt::format("{}: {}: give a trace that this version of DeAR wrote", path, why));
}

}  // namespace dear
