#include "dear/base/trace/chrome.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"

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

constexpr std::string_view kFormat = "dear-trace";
constexpr int kVersion = 1;
constexpr double kMostSeconds = 3e9;          // whose nanoseconds are integers of 64 bits
constexpr std::int64_t kMostIndex = 1 << 30;  // of ranks and lanes
constexpr std::array<std::string_view, 7> kActivities{"forward",       "backward", "update", "codec",
                                                      "communication", "wait",     "other"};

Activity parse_activity(const JsonField& field) {
  const std::string name = field.text();
  const auto found = std::find(kActivities.begin(), kActivities.end(), name);
  if (found == kActivities.end()) field.fail(fmt::format("there is no activity '{}'", name));
  return static_cast<Activity>(found - kActivities.begin());
}

// [Note: whole nanoseconds] Begin and end are each rounded to a nanosecond, and the duration is the
// difference of the two. Rounding keeps order, so spans that did not overlap do not overlap in the file
// either, which rounding a duration by itself would not give.
std::int64_t nanoseconds(double seconds) {
  if (!(std::abs(seconds) < kMostSeconds)) throw ConfigError("a trace cannot hold centuries");
  return std::llround(seconds * 1e9);
}
double microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

std::int64_t nanoseconds_in(const JsonField& microseconds) {
  if (!(std::abs(microseconds.number()) < 1e6 * kMostSeconds))
    microseconds.fail("expected microseconds of some years at most");
  return std::llround(microseconds.number() * 1e3);
}

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

using Lanes = std::map<std::pair<int, int>, std::string>;  // by rank and thread

std::pair<int, int> thread_of(const JsonField& event) {
  return {static_cast<int>(event.member("pid").integer(0, kMostIndex)),
          static_cast<int>(event.member("tid").integer(0, kMostIndex))};
}

Span span_of(const JsonField& event, const Lanes& lanes) {
  const std::pair<int, int> thread = thread_of(event);
  const auto lane = lanes.find(thread);
  if (lane == lanes.end())
    event.fail(
        fmt::format("no thread_name event names thread {} of process {}", thread.second, thread.first));
  const JsonField args = event.member("args");
  const std::int64_t begin = nanoseconds_in(event.member("ts"));
  const std::int64_t length = nanoseconds_in(event.member("dur"));
  if (length < 0) event.member("dur").fail("it is negative");
  return {.rank = thread.first,
          .lane = lane->second,
          .name = event.member("name").text(),
          .activity = parse_activity(args.member("activity")),
          .iteration = args.member("iteration").integer(),
          .step = args.member("step").integer(),
          .begin_seconds = static_cast<double>(begin) / 1e9,
          .end_seconds = static_cast<double>(begin + length) / 1e9};
}

Trace trace_of(const JsonField& document) {
  const JsonField other = document.member("otherData");
  const std::string format = other.member("format").text();
  const std::int64_t version = other.member("version").integer();
  if (format != kFormat || version != kVersion)
    other.fail(fmt::format("it is of format {}, version {}", format, version));
  Trace trace{.title = other.member("title").text(), .network = other.member("network").text(), .spans = {}};
  const std::vector<JsonField> events = document.member("traceEvents").elements();
  Lanes lanes;
  std::vector<const JsonField*> spans;
  for (const JsonField& event : events) {
    const std::string kind = event.member("ph").text();
    if (kind == "X") {
      spans.push_back(&event);
    } else if (kind != "M") {
      event.member("ph").fail(fmt::format("expected M or X, found {}", kind));
    } else if (event.member("name").text() == "thread_name") {
      lanes[thread_of(event)] = event.member("args").member("name").text();
    }
  }
  for (const JsonField* const event : spans) trace.spans.push_back(span_of(*event, lanes));
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
  os::write_file_atomically(path, to_chrome_json(trace));
}

Trace parse_chrome_trace(std::string_view text, const std::string& source) {
  const auto has = [&](const char* words) { return text.find(words) != std::string_view::npos; };
  if (has("\"schemaVersion\"") && !has(kFormat.data()))
    throw ConfigError(fmt::format(
        "{}: it is a trace of torch.profiler, which knows no iterations, buckets or waits: give one of "
        "DeAR's, of --trace of a command or, with record_trace, of model.trace()",
        source));
  const Json document = parse_json(text, source);
  try {
    return trace_of(JsonField(document, source));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: give a trace that this version of DeAR wrote", error.what()));
  }
}

Trace read_chrome_trace(const std::string& path) { return parse_chrome_trace(os::read_file(path), path); }

}  // namespace dear
