#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dear/base/launch/held_signals.h"
#include "dear/base/vocabulary/dtype.h"
#include "dear/tools/bench_collectives/library.h"
#include "dear/tools/bench_collectives/measured_operation.h"
#include "dear/tools/bench_collectives/mpi_launcher.h"
#include "dear/tools/bench_collectives/result.h"
#include "dear/tools/bench_collectives/workers.h"

namespace dear::bench_collectives {

// A library that takes part in a benchmark.
struct SelectedLibrary {
  const Library* library = nullptr;
  std::optional<MpiLauncher> launcher{};  // of a library whose ranks MPI starts
  std::optional<GridSettings> grid{};     // of a backend of DeAR, whose ranks are in this grid
  std::vector<std::string> grid_words{};  // that ask a worker for it
  // "shm", and in a grid the algorithm, too: "shm themis".
  [[nodiscard]] std::string name() const;
};

struct BenchmarkSettings {
  std::string program;                     // the `dear` command, which each rank runs
  std::vector<SelectedLibrary> libraries;  // the others are compared with the first
  MeasuredOperation operation = MeasuredOperation::pair;
  DType dtype = DType::f32;
  int ranks = 2;
  std::vector<std::int64_t> sizes;  // bytes of a rank's vector; of a barrier, 0 alone
  int repeat = 15;
  std::chrono::duration<double> timeout = std::chrono::seconds(60);
  bool bind = false;
  std::uint64_t seed = 1;     // of the sizes of an all-to-all-v
  bool reproducible = false;  // see LibraryOptions
  int ahead = 1;              // likewise
  bool interference = false;  // the first library is measured while its ranks compute, too
  bool touch = false;         // vectors are written before each operation, and read after it
  double late_seconds = 0;    // rank 0 begins each repetition so many seconds after the others, which wait
  bool launched = false;      // a launcher has started the ranks: this process is one of them
};

// A library that failed, or whose result was wrong.
struct Failure {
  std::string library;
  std::string reason;
  std::string output;  // the end of what its ranks wrote to standard output and error
};

struct BenchmarkOutcome {
  std::vector<Result> results;  // by size, then in the order of the settings
  std::vector<std::pair<std::string, std::string>> descriptions;  // library, what it says of itself
  std::vector<std::string> notes;                                 // what could not be measured, and why
  std::vector<Failure> failures;
};

// Measures all selected libraries in one run. Each library has ranks of its own, which live throughout and
// sleep while other libraries are measured. At each size every library is verified once; then libraries take
// turns, `repeat` times, so that a change of the machine's load meets all of them alike. In a turn all ranks
// start together, first unmeasured, then measured. A repetition lasts from the first rank's begin to the last
// rank's end. At small sizes a repetition is a batch of operations, whose time is divided by their number.
//
// A library that fails, hangs, or computes wrongly does not stop the others. `progress` is called with each
// size before the measurement of it. Interrupted (worker_processes.h) when a signal comes, after all ranks
// have been ended.
BenchmarkOutcome run_benchmark(const BenchmarkSettings& settings, const launch::HeldSignals& signals,
                               const std::function<void(std::int64_t bytes)>& progress);

// Runs the benchmark with workers that `start_workers` makes. With settings.launched every rank runs the
// benchmark, and the first failure ends it as an exception, since ranks may have seen different parts of it.
using StartWorkers = std::function<std::unique_ptr<Workers>(const SelectedLibrary& selected)>;
BenchmarkOutcome run_benchmark_on(const BenchmarkSettings& settings, const StartWorkers& start_workers,
                                  const std::function<void(std::int64_t bytes)>& progress);

}  // namespace dear::bench_collectives
