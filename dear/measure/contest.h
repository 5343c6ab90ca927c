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

#include "dear/base/dtype.h"
#include "dear/launch/held_signals.h"
#include "dear/measure/contestant.h"
#include "dear/measure/measured_operation.h"
#include "dear/measure/mpi_launcher.h"
#include "dear/measure/result.h"
#include "dear/measure/team.h"

namespace dear::measure {

struct Entrant {
  const Contestant* contestant = nullptr;
  std::optional<MpiLauncher> launcher{};  // where MPI starts it
};

struct ContestSettings {
  std::string program;            // the `dear` command, which the bench starts as its ranks
  std::vector<Entrant> entrants;  // the first is what the others are compared with
  MeasuredOperation operation = MeasuredOperation::pair;
  DType dtype = DType::f32;
  int ranks = 2;
  std::vector<std::int64_t> sizes;  // bytes of a rank's vector; of a barrier, 0 alone
  int repeat = 15;
  std::chrono::duration<double> timeout = std::chrono::seconds(60);
  bool bind = false;
  bool reproducible = false;  // see EngineOptions
  int ahead = 1;              // likewise
  bool interference = false;  // the first one is measured while its ranks compute, too
  bool touch = false;         // vectors are written before each operation, and read after it
  double late_seconds = 0;    // rank 0 begins each repetition so much after the others, which wait
  bool launched = false;      // a launcher has started the ranks: this process is one of them
};

struct Failure {
  std::string contestant;
  std::string reason;
  std::string output;  // the end of what its ranks wrote to standard output and error
};

struct ContestOutcome {
  std::vector<Result> results;                                    // by size, then as entered
  std::vector<std::pair<std::string, std::string>> descriptions;  // of each contestant that came
  std::vector<std::string> notes;                                 // what could not be measured, and why
  std::vector<Failure> failures;
};

// Measures all of them in one run. Each contestant has its own ranks, which live throughout and sleep while
// others are measured. At each size every contestant is verified once; then they take turns, as often as is
// asked for, so that what else happens on the machine hits all alike. In a turn all ranks start together,
// once without and once with the clock. A repetition lasts from the first rank's begin to the last rank's
// end; for small sizes it is a batch of operations, and its time is divided by their number.
//
// A contestant that fails, hangs, or computes wrongly does not stop the others. `progress` is called with a
// size before it is measured. Interrupted (crew.h) when a signal comes, after all ranks have been ended.
ContestOutcome hold_contest(const ContestSettings& settings, const launch::HeldSignals& signals,
                            const std::function<void(std::int64_t bytes)>& progress);

// The same with ranks that run already. Where every rank holds the contest, the first failure ends it: it is
// thrown, since ranks may differ in what they saw of it.
using MakeTeam = std::function<std::unique_ptr<Team>(const Entrant& entrant)>;
ContestOutcome hold_contest_among(const ContestSettings& settings, const MakeTeam& make_team,
                                  const std::function<void(std::int64_t bytes)>& progress);

}  // namespace dear::measure
