#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/systems/train_command/interleaving.h"
#include "dear/systems/train_command/tuning_report.h"
#include "dear/workload/layers/workload.h"

namespace dear::train_command {

// How the time of a rank's iterations is divided.
struct IterationTimes {
  Spread iteration_seconds;                  // between consecutive ends of step()
  double compute_seconds = 0;                // median of an iteration less its exposed communication
  double exposed_communication_seconds = 0;  // median
};
// Summarises the iterations that are in `counted`. The vectors hold every iteration of a run in order.
IterationTimes summarize_iterations(const std::vector<double>& iteration_seconds,
                                    const std::vector<double>& exposed_seconds,
                                    const std::vector<Range>& counted);
// The steps whose times count in a run of `steps` steps that nothing interrupted. The first tenth of them, at
// least 2 and at most 10, warm up; the last step always counts.
Range counted_of_run(std::int64_t steps);

// SentGradients counts what a rank sent of its gradients, where collectives send no more than they must.
struct SentGradients {
  std::string compression = "dense";  // as options name it
  double bytes = 0;                   // a step
  double dense_bytes = 0;             // a step, had they travelled dense
  double residual_norm = 0;           // at the end, of what error feedback holds
  std::int64_t dense_exchanges = 0;   // of buckets that a sketch could not carry
  std::int64_t not_finite = 0;        // steps of a bucket whose mean came out with NaN or infinity
};

// KfacTroubles counts what K-FAC went on without, on the rank that met most of it.
struct KfacTroubles {
  std::int64_t given_up_inverses = 0;  // that became the identity
  std::int64_t nonfinite_factors = 0;  // renewals left out
  std::int64_t raised_dampings = 0;    // of factors that were not positive definite
};
// One line without its end: "K-FAC: 2 inverses were given up, ..."; "" where there is nothing to say.
std::string text_of(const KfacTroubles& troubles);

// MoeReport says what the mixtures of experts of a model did on this rank. Times are medians of a step.
struct MoeReport {
  std::int64_t experts = 0;
  std::string gate, overlap;
  int parts = 1;
  std::int64_t all_to_alls = 0;  // in a step
  double sent_bytes = 0;
  double seconds = 0;         // from when all ranks had come to each until its end
  double waited_seconds = 0;  // of these, or for other ranks to come: the program waited
  double dropped_share = 0;   // of all choices of experts
  double balance = 1;         // of the worst mixture: the largest load of an expert over the mean
};
// One line with its end.
std::string text_of(const MoeReport& report);

// One training run of one policy, as rank 0 measured it.
struct TrainResult {
  std::string policy;
  std::string chosen_policy{};  // by the first steps, where `policy` is a choice
  int workers = 1;
  std::int64_t steps = 0;
  std::string network;  // "" when real, else how it was modelled
  std::string fusion;
  std::string optimizer;
  SentGradients sent{};
  std::vector<double> losses;            // mean over ranks, per step
  IterationTimes times;                  // of the steps that count
  double characters_per_second = 0;      // of all workers, at the median iteration
  std::string unsaved{};                 // why the last checkpoint could not be written; "" where it was
  std::string digest;                    // SHA-256 of the final parameters
  KfacTroubles kfac{};                   // of an optimiser that is K-FAC
  std::optional<MoeReport> moe{};        // of a model with mixtures of experts
  std::optional<TuningReport> tuning{};  // where buckets were tuned
  std::optional<ByName> buckets{};       // at the end, where they were not given; on every rank
  // The seconds of every iteration, from the end of step() to the next end; the first iteration of a turn
  // begins with the turn.
  std::vector<double> step_seconds{};

  std::string sample{};               // generated text; "" when none was asked for
  std::optional<Trace> trace{};       // of this rank, when recorded
  std::optional<Workload> profile{};  // likewise
};

}  // namespace dear::train_command
