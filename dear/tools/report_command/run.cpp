#include "dear/tools/report_command/run.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/trace/chrome.h"
#include "dear/base/trace/kineto.h"
#include "dear/base/vocabulary/error.h"

namespace dear::report_command {
namespace {

constexpr std::string_view kGive =
    "give a trace, a metrics file, or what --json of a command writes (docs/report.md)";

[[noreturn]] void refuse(const std::string& source, std::string_view why) {
  throw ConfigError(fmt::format("{}: {}: {}", source, why, kGive));
}

// The lines of a text that are not blank.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (text.substr(0, end).find_first_not_of(" \t\r") != std::string_view::npos)
      lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool is_metrics(const Json& json) {
  return json.is_object() && json.contains("rank") && json.contains("iteration") &&
         json.contains("exposed_seconds") && json.contains("overlap");
}

// Whether the first line of a text is one of a metrics file, or the begin of such a line.
bool begins_as_metrics(std::string_view line) {
  return line.find("\"exposed_seconds\"") != std::string_view::npos &&
         line.find("\"overlap\"") != std::string_view::npos &&
         line.find("\"iteration\"") != std::string_view::npos;
}

Metrics parse_metrics(const std::vector<std::string_view>& lines, const std::string& source) {
  Metrics metrics;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string place = fmt::format("{}, line {}", source, i + 1);
    metrics.push_back(parse_json(lines[i], place));
    if (!is_metrics(metrics.back())) refuse(place, "it is no line of a metrics file");
    const JsonField line(metrics.back(), place);
    static_cast<void>(line.member("rank").integer(0, 1 << 30));
    static_cast<void>(line.member("iteration").integer());
    for (const char* const number : {"seconds", "exposed_seconds", "communication_seconds", "overlap"})
      static_cast<void>(line.member(number).number());
  }
  return metrics;
}

bool is_result(const Json& json) {
  if (json.is_array())
    return !json.empty() && std::all_of(json.begin(), json.end(), [](const Json& one) {
      return one.is_object() && one.contains("dear_version");
    });
  return json.is_object() && json.contains("dear_version");
}

std::set<int> ranks_in(const Trace& trace) {
  std::set<int> ranks;
  for (const Span& span : trace.spans) ranks.insert(span.rank);
  return ranks;
}

void shift(Trace& trace, double seconds) {
  for (Span& span : trace.spans) {
    span.begin_seconds += seconds;
    span.end_seconds += seconds;
  }
}

std::string name_of(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  for (const std::string_view ending : {".gz", ".json", ".jsonl", ".trace", ".pt"}) {
    if (name.ends_with(ending) && name.size() > ending.size()) name.erase(name.size() - ending.size());
  }
  return name;
}

}  // namespace

void Runs::add_trace(Run& run, const std::string& source, std::string_view text) {
  const bool of_profiler = is_kineto(text);
  std::int64_t origin = 0;
  Trace trace;
  if (of_profiler) {
    KinetoTrace read = parse_kineto(text, source);
    trace = std::move(read.trace);
    origin = read.origin_nanoseconds;
  } else {
    trace = parse_chrome_trace(text, source);
  }
  if (trace.spans.empty()) refuse(source, "it is a trace without a span");
  if (!run.trace) {
    run.trace = std::move(trace);
    run.of_profiler = of_profiler;
    origins_.push_back({run.name, origin});
    return;
  }
  if (run.of_profiler != of_profiler)
    throw ConfigError(fmt::format(
        "{}: run '{}' has a trace of DeAR and one of torch.profiler: give them names, as in NAME={}", source,
        run.name, source));
  const std::set<int> known = ranks_in(*run.trace);
  for (const int rank : ranks_in(trace)) {
    if (known.contains(rank))
      throw ConfigError(
          fmt::format("{}: run '{}' has a trace of rank {} already: give each run a name of its own, as in "
                      "NAME={}",
                      source, run.name, rank, source));
  }
  const auto first =
      std::find_if(origins_.begin(), origins_.end(), [&](const Origin& one) { return one.name == run.name; });
  shift(trace, static_cast<double>(origin - first->nanoseconds) / 1e9);
  run.trace->spans.insert(run.trace->spans.end(), trace.spans.begin(), trace.spans.end());
}

void Runs::add(const std::string& name, const std::string& source, std::string_view text) {
  require_readable(name, "the name of a run");
  if (name.empty()) throw ConfigError(fmt::format("{}: the name of its run is empty", source));
  const std::vector<std::string_view> lines = lines_of(text);
  if (lines.empty()) refuse(source, "it is empty");
  auto run = std::find_if(runs_.begin(), runs_.end(), [&](const Run& one) { return one.name == name; });
  if (run == runs_.end()) run = runs_.insert(runs_.end(), {.name = name, .sources = {}});
  run->sources.push_back(source);
  if (is_kineto(text) || text.find("\"traceEvents\"") != std::string_view::npos) {
    add_trace(*run, source, text);
    return;
  }
  if (begins_as_metrics(lines.front())) {
    Metrics metrics = parse_metrics(lines, source);
    for (const Metrics& other : run->metrics) {
      if (other.front().at("rank") == metrics.front().at("rank"))
        throw ConfigError(fmt::format(
            "{}: run '{}' has metrics of rank {} already: give each run a name of its own, as in NAME={}",
            source, name, other.front().at("rank").get<int>(), source));
    }
    run->metrics.push_back(std::move(metrics));
    return;
  }
  Json json = parse_json(text, source);
  if (!is_result(json)) {
    const bool named = json.is_object() && json.contains("format") && json.at("format").is_string();
    refuse(source, named ? fmt::format("it is of format {}", json.at("format").get<std::string>())
                         : "it is no file that a report is made of");
  }
  if (run->results)
    throw ConfigError(
        fmt::format("{}: run '{}' has results already: give each run a name of its own, as in NAME={}",
                    source, name, source));
  run->results = std::move(json);
}

Runs read_runs(const std::vector<std::string>& words) {
  Runs runs;
  for (const std::string& word : words) {
    const std::size_t sign = word.find('=');
    const bool named = sign != std::string::npos && !std::filesystem::exists(word);
    const std::string path = named ? word.substr(sign + 1) : word;
    runs.add(named ? word.substr(0, sign) : name_of(path), path, os::read_file(path));
  }
  return runs;
}

}  // namespace dear::report_command
