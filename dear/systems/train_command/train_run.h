#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/systems/train_command/corpus.h"
#include "dear/systems/train_command/train_result.h"
#include "dear/systems/train_command/train_settings.h"

namespace dear::train_command {

// Called after each step with the steps that this policy has done and this rank's loss.
using StepListener = std::function<void(std::int64_t done, double loss)>;

// One policy of a training job.
struct TrainRun {
  std::string policy;
  std::optional<Compression> compression{};
  bool record_trace = false;     // fills TrainResult::trace and TrainResult::profile
  std::int64_t sample = 0;       // characters to generate at the end
  bool until_converged = false;  // ends early, when tuning has converged
  Say say{};                     // of checkpoints
  std::vector<Range> counted{};  // steps that TrainResult::times are of; none: counted_of_run()
};

// Training of a fresh model under one policy, which may be interrupted between steps. Every rank of the group
// makes the same calls in the same order. One thread calls.
class TrainingJob {
 public:
  TrainingJob() = default;
  virtual ~TrainingJob() = default;
  TrainingJob(const TrainingJob&) = delete;
  TrainingJob& operator=(const TrainingJob&) = delete;

  // Takes the next `steps` steps, or fewer with `until_converged`, where checkpoints before them count, and
  // where a signal ends it that is not one of several turns: SIGINT, or SIGTERM where the settings save.
  // Then the last is saved. Afterwards the parameters are whole
  // and nothing of this job is on the network: the group may serve another job until the next advance().
  // `listener` may be empty. Errors as of DataParallel.
  virtual void advance(std::int64_t steps, const StepListener& listener) = 0;

  // Whether SIGINT has come to any rank, the same on every rank: the training is to end. A second one ends
  // the process.
  [[nodiscard]] virtual bool interrupted() = 0;

  // Ends the training; called once, after at least one step. Rank 0's result has the generated sample.
  // MismatchError when the ranks have different parameters.
  virtual TrainResult end() = 0;
};

// Makes a job. The settings, the corpus and the group must outlive it. ConfigError and MismatchError as of
// DataParallel.
std::unique_ptr<TrainingJob> start_training(const TrainSettings& settings, const TrainRun& run,
                                            const Corpus& corpus, const Group& group);

// Sets the number of threads with which this process computes; called before the first start_training().
void set_compute_threads(int threads);

std::int64_t parameter_count(const TrainSettings& settings, const Corpus& corpus);

}  // namespace dear::train_command
