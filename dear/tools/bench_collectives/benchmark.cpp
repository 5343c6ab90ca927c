#include "dear/tools/bench_collectives/benchmark.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/tools/bench_collectives/planned_seconds.h"
#include "dear/tools/bench_collectives/worker_processes.h"

namespace dear::bench_collectives {
namespace {

// A repetition takes at least this long, so that the clock and the staggered start of the ranks do not count.
constexpr double kLeastRepetitionSeconds = 1e-3;
constexpr double kMostBatch = 1000;
// While ranks compute besides, a repetition takes at least this long, so that time slices of the system do
// not count either.
constexpr double kLeastComputingSeconds = 0.1;

// One line of the results: a library at an operation.
struct Series {
  std::size_t library;
  MeasuredOperation operation;
  bool computing = false;  // ranks compute meanwhile
  int batch = 1;
  std::vector<double> seconds{};
  std::vector<double> slowdowns{};  // of what they compute
  std::vector<double> waiting_shares{};
  std::vector<std::int64_t> sent_bytes{};  // by rank, of an all-to-all-v
  bool verified = false;
  bool refused = false;
};

// The time of one operation in each repetition.
std::vector<double> seconds_of(const std::vector<Reply>& replies, int batch) {
  std::vector<double> seconds;
  for (std::size_t i = 0; i < replies.front().intervals.size(); ++i) {
    Interval whole = replies.front().intervals[i];
    for (const Reply& reply : replies) {
      const Interval& interval = reply.intervals.at(i);
      whole.begin_seconds = std::min(whole.begin_seconds, interval.begin_seconds);
      whole.end_seconds = std::max(whole.end_seconds, interval.end_seconds);
    }
    seconds.push_back((whole.end_seconds - whole.begin_seconds) / batch);
  }
  return seconds;
}

double mean_slowdown(const std::vector<Reply>& replies) {
  double sum = 0;
  for (const Reply& reply : replies) sum += reply.slowdowns.at(0);
  return sum / static_cast<double>(replies.size());
}

// How long the last rank to come took, from the one repetition in each reply.
double late_seconds_of(const std::vector<Reply>& replies, int batch) {
  const Interval& interval = replies.front().intervals.at(0);
  return (interval.end_seconds - interval.begin_seconds) / batch;
}

double greatest_waiting_share(const std::vector<Reply>& replies) {
  double greatest = 0;
  for (std::size_t rank = 1; rank < replies.size(); ++rank)
    greatest = std::max(greatest, replies[rank].processor_shares.at(0));
  return greatest;
}

class Benchmark {
 public:
  Benchmark(const BenchmarkSettings& settings, const StartWorkers& start_workers) : settings_(settings) {
    for (const SelectedLibrary& selected : settings.libraries) {
      const std::size_t number = workers_.size();
      workers_.push_back(start_workers(selected));
      all_series_.push_back({.library = number, .operation = settings.operation});
      // What an all-to-all-v saves: the same blocks, full.
      if (!selected.library->only_copies && settings.operation == MeasuredOperation::all_to_all_v) {
        if (selected.library->rival) all_series_.pop_back();
        all_series_.push_back({.library = number, .operation = MeasuredOperation::all_to_all});
      }
      // A rival runs the all-reduce, in whose place the pair stands.
      if (selected.library->rival && !selected.library->only_copies &&
          settings.operation == MeasuredOperation::pair) {
        all_series_.push_back({.library = number, .operation = MeasuredOperation::all_reduce});
      }
    }
    if (settings.interference) {
      all_series_.push_back({.library = 0, .operation = settings.operation, .computing = true});
    }
  }

  BenchmarkOutcome hold(const std::function<void(std::int64_t)>& progress) {
    // Libraries open one after another, since while ranks meet their libraries may keep every core busy.
    for (std::size_t library = 0; library < workers_.size(); ++library) {
      attempt(library, [&] {
        outcome_.descriptions.emplace_back(name_of_library(library), workers_[library]->wait_ready());
      });
    }
    for (const std::int64_t bytes : settings_.sizes) {
      progress(bytes);
      measure(bytes);
    }
    for (std::size_t library = 0; library < workers_.size(); ++library) {
      attempt(library, [&] { workers_[library]->end(); });
    }
    return std::move(outcome_);
  }

 private:
  [[nodiscard]] std::string name_of_library(std::size_t library) const {
    return settings_.libraries[library].name();
  }

  // Does `action` unless the library has failed already; false when it has.
  template <typename Do>
  bool attempt(std::size_t library, Do action) {
    if (!workers_[library]) {
      return false;
    }
    try {
      action();
      return true;
    } catch (const Error& error) {
      if (settings_.launched) {
        throw;
      }
      outcome_.failures.push_back({.library = name_of_library(library),
                                   .reason = error.what(),
                                   .output = workers_[library]->output()});
      workers_[library].reset();
      return false;
    }
  }

  void measure(std::int64_t bytes) {
    for (Series& series : all_series_) {
      series.seconds.clear();
      series.slowdowns.clear();
      series.waiting_shares.clear();
      attempt(series.library, [&] { prepare(series, bytes); });
    }
    for (int round = 0; round < settings_.repeat; ++round) {
      for (Series& series : all_series_) {
        if (!series.refused) {
          attempt(series.library, [&] { take_turn(series, bytes); });
        }
      }
    }
    for (const Series& series : all_series_) {
      if (!series.refused && workers_[series.library]) {
        outcome_.results.push_back({.backend = name_of_library(series.library),
                                    .operation = series.operation,
                                    .dtype = settings_.dtype,
                                    .ranks = settings_.ranks,
                                    .bytes = bytes,
                                    .seconds = spread_of(series.seconds),
                                    .verified = series.verified,
                                    .copies = copies(series),
                                    .ahead = ahead_of(series),
                                    .sent_bytes = series.sent_bytes,
                                    .touched = settings_.touch});
        if (const auto& grid = settings_.libraries[series.library].grid)
          outcome_.results.back().planned_seconds = planned_seconds(*grid, series.operation, bytes);
        if (series.computing)
          outcome_.results.back().computation_slowdown = spread_of(series.slowdowns).median;
        if (settings_.late_seconds > 0)
          outcome_.results.back().waiting_share = spread_of(series.waiting_shares).median;
      }
    }
  }

  void take_turn(Series& series, std::int64_t bytes) {
    Command command = order(series, bytes, {.unmeasured = 1, .repetitions = 1});
    if (settings_.late_seconds > 0) {
      command.unmeasured = 0;  // the wait is long enough to forget what was before
      command.late_seconds = settings_.late_seconds;
      const std::vector<Reply> replies = workers_[series.library]->ask(command);
      series.seconds.push_back(late_seconds_of(replies, series.batch));
      series.waiting_shares.push_back(greatest_waiting_share(replies));
      return;
    }
    const std::vector<Reply> replies = workers_[series.library]->ask(command);
    const auto seconds = seconds_of(replies, series.batch);
    series.seconds.insert(series.seconds.end(), seconds.begin(), seconds.end());
    if (series.computing) series.slowdowns.push_back(mean_slowdown(replies));
  }

  // Verifies the library at this size, and finds how many operations make a repetition.
  void prepare(Series& series, std::int64_t bytes) {
    if (series.refused) {
      return;
    }
    Workers& workers = *workers_[series.library];
    Command verify = order(series, bytes, {});
    verify.kind = Command::Kind::verify;
    series.verified = true;
    series.sent_bytes.clear();
    const std::vector<Reply> replies = workers.ask(verify);
    for (std::size_t rank = 0; rank < replies.size(); ++rank) {
      const Reply& reply = replies[rank];
      if (series.operation == MeasuredOperation::all_to_all_v && !copies(series))
        series.sent_bytes.push_back(reply.sent_bytes);
      if (reply.kind == Reply::Kind::refused) {
        if (!series.computing)
          outcome_.notes.push_back(fmt::format("{} is not measured at {}: {}",
                                               name_of_library(series.library), name_of(series.operation),
                                               reply.text));
        series.refused = true;
        return;
      }
      if (reply.kind == Reply::Kind::wrong && series.verified) {
        series.verified = false;
        outcome_.failures.push_back(
            {.library = name_of_library(series.library),
             .reason = fmt::format("the result of {} at {} bytes is wrong: on rank {}, {}",
                                   name_of(series.operation), bytes, rank, reply.text)});
      }
    }
    series.batch = batch_of(series, bytes);
  }

  // Finds the size of a batch in few steps, since a short batch seems longer than it is: ranks start a moment
  // after each other.
  int batch_of(Series series, std::int64_t bytes) {
    const int ahead = ahead_of(series);
    series.batch = ahead;
    const double least = series.computing ? kLeastComputingSeconds : kLeastRepetitionSeconds;
    for (int step = 0; step < 4; ++step) {
      const auto seconds =
          seconds_of(workers_[series.library]->ask(order(series, bytes, {.unmeasured = 1, .repetitions = 3})),
                     series.batch);
      const double usual = std::max(spread_of(seconds).median, 1e-9);
      if (usual * series.batch >= least) {
        break;
      }
      series.batch = static_cast<int>(std::clamp(std::ceil(least / usual), 1.0, kMostBatch));
      series.batch = (series.batch + ahead - 1) / ahead * ahead;
    }
    return series.batch;
  }

  [[nodiscard]] bool copies(const Series& series) const {
    return settings_.libraries[series.library].library->only_copies;
  }
  // A rival waits for each operation; only groups of DeAR issue operations ahead.
  [[nodiscard]] int ahead_of(const Series& series) const {
    return settings_.libraries[series.library].library->rival ? 1 : settings_.ahead;
  }

  struct Times {
    int unmeasured = 0;
    int repetitions = 0;
  };
  [[nodiscard]] Command order(const Series& series, std::int64_t bytes, Times times) const {
    return {.kind = Command::Kind::measure,
            .operation = series.operation,
            .dtype = settings_.dtype,
            .bytes = bytes,
            .unmeasured = series.computing ? 0 : times.unmeasured,  // they are long, and follow others
            .repetitions = times.repetitions,
            .batch = series.batch,
            .computing = series.computing,
            .touching = settings_.touch,
            .seed = settings_.seed};
  }

  const BenchmarkSettings& settings_;
  std::vector<std::unique_ptr<Workers>> workers_;  // empty where one has failed
  std::vector<Series> all_series_;
  BenchmarkOutcome outcome_;
};

}  // namespace

std::string SelectedLibrary::name() const {
  return grid ? fmt::format("{} {}", library->name, grid->algorithm) : std::string(library->name);
}

BenchmarkOutcome run_benchmark_on(const BenchmarkSettings& settings, const StartWorkers& start_workers,
                                  const std::function<void(std::int64_t bytes)>& progress) {
  return Benchmark(settings, start_workers).hold(progress);
}

BenchmarkOutcome run_benchmark(const BenchmarkSettings& settings, const launch::HeldSignals& signals,
                               const std::function<void(std::int64_t bytes)>& progress) {
  const std::int64_t most = *std::max_element(settings.sizes.begin(), settings.sizes.end());
  const auto start_processes = [&](const SelectedLibrary& selected) {
    return std::make_unique<WorkerProcesses>(
        *selected.library,
        WorkersOptions{.program = settings.program,
                       .ranks = settings.ranks,
                       .bind = settings.bind,
                       .reproducible = settings.reproducible,
                       .ahead = settings.ahead,
                       .prepare_bytes = most,
                       .output_bytes = has_output(settings.operation) ? most : 0,
                       .timeout = settings.timeout,
                       .launcher = selected.launcher,
                       .grid_words = selected.grid_words},
        signals);
  };
  return run_benchmark_on(settings, start_processes, progress);
}

}  // namespace dear::bench_collectives
