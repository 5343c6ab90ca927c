#include "dear/tools/bench_command/bench_report.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>

#include "dear/base/vocabulary/units.h"
#include "dear/tools/options/table.h"

namespace dear::cli {
namespace {

// Under more load than this, medians of libraries that share cores with it say little.
constexpr double kBusyLoad = 0.5;

std::string gigabytes(double bytes_per_second) { return fmt::format("{:.3f}", bytes_per_second / 1e9); }
std::string microseconds(double seconds) { return fmt::format("{:.2f}", seconds * 1e6); }

// How many times as long the library took as the first library of this size.
std::string multiple(const bench_collectives::Result& result, const bench_collectives::Result& first) {
  return first.seconds.median > 0 ? fmt::format("{:.2f}", result.seconds.median / first.seconds.median) : "-";
}

// "1 KiB to 3 KiB"
std::string range_of(const std::vector<std::int64_t>& bytes) {
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  return fmt::format("{} to {}", format_bytes(*least), format_bytes(*most));
}

}  // namespace

std::string heading(const bench_collectives::BenchmarkSettings& settings) {
  return fmt::format(
      "{} of {}, {} {}{}{}{}{}, medians of {} repetitions taken in turns\n", name_of(settings.operation),
      name_of(settings.dtype), settings.ranks, settings.ranks == 1 ? "rank" : "ranks",
      settings.bind ? " bound to their cores" : "",
      settings.ahead > 1 ? fmt::format(", {} issued ahead", settings.ahead) : "",
      settings.touch ? ", vectors written before and read after" : "",
      settings.late_seconds > 0
          ? fmt::format(", rank 0 late by {:g} ms, whose times these are", 1e3 * settings.late_seconds)
          : "",
      settings.repeat);
}

std::string result_table(const std::vector<bench_collectives::Result>& results) {
  if (results.empty()) {
    return "";
  }
  const bool waiting = results.front().waiting_share.has_value();
  std::vector<std::string> heads{
      "size", "backend",    "operation",  "median us", "p10",
      "p90",  "algbw GB/s", "busbw GB/s", "verified",  "x " + results.front().backend};
  const bool planned = std::any_of(results.begin(), results.end(),
                                   [](const auto& result) { return result.planned_seconds.has_value(); });
  const auto uneven = [](const auto& result) { return !result.sent_bytes.empty(); };
  const bool sent = std::any_of(results.begin(), results.end(), uneven);
  if (sent) heads.emplace_back("sent by a rank");
  if (waiting) heads.emplace_back("waiting, % of a core");
  if (planned) heads.insert(heads.end(), {"planned us", "planned/median"});
  Table table(heads, {.left_columns = 3});
  const bench_collectives::Result* first = nullptr;
  for (const bench_collectives::Result& result : results) {
    const bool next_size = first == nullptr || first->bytes != result.bytes;
    first = next_size ? &result : first;
    std::vector<std::string> cells{!next_size          ? ""
                                   : result.bytes == 0 ? "-"
                                                       : format_bytes(result.bytes),
                                   result.label(),
                                   std::string(name_of(result.operation)),
                                   microseconds(result.seconds.median),
                                   microseconds(result.seconds.p10),
                                   microseconds(result.seconds.p90),
                                   gigabytes(result.algorithm_bandwidth()),
                                   gigabytes(result.bus_bandwidth()),
                                   result.verified ? "yes" : "NO",
                                   multiple(result, *first)};
    if (sent) cells.push_back(uneven(result) ? range_of(result.sent_bytes) : "-");
    if (waiting) cells.push_back(fmt::format("{:.2f}", 100 * result.waiting_share.value()));
    if (planned) {
      const double seconds = result.planned_seconds.value_or(0);
      cells.push_back(result.planned_seconds ? microseconds(seconds) : "-");
      cells.push_back(result.planned_seconds ? fmt::format("{:.2f}", seconds / result.seconds.median) : "-");
    }
    table.add(cells);
  }
  return table.to_string();
}

std::string circumstances_text(const bench_collectives::BenchmarkSettings& settings,
                               const bench_collectives::BenchmarkOutcome& outcome,
                               const Circumstances& circumstances) {
  std::string text;
  for (const auto& [library, description] : outcome.descriptions) {
    text += fmt::format("{}: {}\n", library, description);
  }
  for (const std::string& note : outcome.notes) {
    text += fmt::format("note: {}\n", note);
  }
  text += fmt::format("{} on {} cores, ranks {}; load {:.2f} before, {:.2f} after\n", circumstances.program,
                      circumstances.cores,
                      settings.launched                       ? "where their launcher put them"
                      : !settings.bind                        ? "not bound"
                      : settings.ranks <= circumstances.cores ? "bound to cores of their own"
                                                              : "bound, several to a core",
                      circumstances.load_before, circumstances.load_after);
  if (circumstances.load_before > kBusyLoad) {
    text += "note: the machine was busy before the run began; measure on an idle one for numbers to quote\n";
  }
  return text;
}

std::string failures_text(const std::vector<bench_collectives::Failure>& failures, const std::string& who) {
  std::string text;
  for (const bench_collectives::Failure& failure : failures) {
    text += fmt::format("{}: {}: {}\n", who, failure.library, failure.reason);
    std::istringstream lines(failure.output);
    for (std::string line; std::getline(lines, line);) {
      text += fmt::format("  {} | {}\n", failure.library, line);
    }
  }
  return text;
}

double load_of_last_minute() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load : 0;
}

}  // namespace dear::cli
