#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/base/vocabulary/say.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/comm/group/group.h"
#include "dear/systems/train_command/corpus.h"
#include "dear/systems/train_command/train_settings.h"

namespace dear::train_command {

// A pipeline as it is known before the first step.
struct PipelinePlanned {
  std::int64_t parameters = 0;      // of the whole model
  std::vector<std::string> stages;  // "stage 0 ('embedding' to 'blocks.0.mlp') on rank 1"
  double predicted_seconds = 0;     // of a step, by the plan
  std::string plan;                 // as a file has it
};

struct PipelineTrained {
  PipelinePlanned planned;
  int workers = 1, micro_batches = 1;
  std::string network;               // "" when real, else how it was modelled
  std::int64_t resumed_at = 0;       // steps of earlier runs
  bool interrupted = false;          // by SIGINT, before the last step
  std::string unsaved{};             // why the last checkpoint could not be written; "" where it was
  std::vector<double> losses;        // by step of this run
  std::vector<double> step_seconds;  // forward and backward passes, of the slowest rank
  Spread counted_seconds;            // of those after the warm-up
  double sent_bytes = 0;             // of all ranks, in a step
  std::optional<Trace> trace{};      // of all ranks, when recorded
};
std::string to_json(const PipelineTrained& trained);
// Lines, each ended: the model, its stages, and what the plan says; losses, and what a step took beside it.
std::string to_text(const PipelinePlanned& planned, const PipelineJob& job);
std::string to_text(const PipelineTrained& trained);

struct PipelineListener {
  std::function<void(const PipelinePlanned& planned)> planned;
  std::function<void(std::int64_t done, double loss, double seconds)>
      stepped;  // seconds since the first step began
  Say say;      // of checkpoints and signals, a sentence, on rank 0
};

// Trains a GPT whose layers lie on the ranks, all of which call it alike, until the steps are taken or a
// signal comes: SIGINT, or SIGTERM where it saves. In the training module. Errors as of Pipeline.
PipelineTrained train_pipeline(const PipelineJob& job, const Corpus& corpus, const Group& group,
                               const PipelineListener& listener);

}  // namespace dear::train_command
