#include "dear/systems/train_command/train_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dear::train_command {

std::string KfacJob::text() const {
  return fmt::format("{}, damping {}, average {}, clip {}, factors every {} and inverses every {}{}{}{}",
                     strategy, damping, ema, kl_clip.value_or(0), factor_every, inverse_every,
                     pi_correction ? ", pi" : "", exclude.empty() ? "" : ", without ",
                     fmt::join(exclude, " "));
}

std::string MoeJob::text() const {
  return fmt::format(
      "a mixture of {} experts in each {} blocks, gate {}, capacity factor {}, overlap {}, {} part{}",
      experts, every, gate, capacity_factor, overlap, parts, parts == 1 ? "" : "s");
}

std::string PipelineJob::text() const {
  return fmt::format(
      "pipeline: network {}, backend {}, steps {}, batch {}, micro-batches {}, layers {}, width {}, heads "
      "{}, "
      "context {}, seed {}, schedule {}, planner {}, stages {}, replicas {}, compression {} {}, plan {}, "
      "optimiser {}, lr "
      "{}, clip {}, saving {} {} {} {}, trace {}",
      cluster ? cluster->name : "real", gpt.backend, gpt.steps, gpt.batch, micro_batches, gpt.layers,
      gpt.width, gpt.heads, gpt.context, gpt.seed, schedule, planner, stages_per_worker, replicas,
      compression, ratio, plan_file, optimizer, learning_rate, clip, saving.directory, saving.every,
      saving.keep, saving.resume, record_trace);
}

std::string text_of(const std::optional<Compression>& compression) {
  return compression ? compression->text() : std::string(kDense);
}

std::string TrainSettings::name_of_run(std::size_t run) const {
  return compares_compressions ? text_of(compressions.at(run)) : policies.at(run);
}

}  // namespace dear::train_command
