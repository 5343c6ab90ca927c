// [Note: on streams] Buckets lie in memory of the device; collectives and updates are enqueued on the
// communication stream, in the gradient's hook and in step(), and have ended then (Started::done), but for
// what the host must see ([Note: buckets on a device]). Whoever would wait for the conductor makes its
// current stream wait for the bucket. docs/internals/training.md has the rest.

#include "dear/train/data_parallel/stream_training.h"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/train/data_parallel/trainer.h"
#include "dear/train/streams/stream_collectives.h"

namespace dear::train {

void StreamTraining::refuse(const char* what) {
  throw ConfigError(
      fmt::format("{} is not there on a device with streams: train without it, or on the CPU", what));
}

void StreamTraining::require_usable(const Trainer& own, const ModelScan& scanned) {
  const std::vector<TrainedParameter>& trained = scanned.trained;
  const at::Device device = trained.front().tensor.device();
  for (const TrainedParameter& parameter : trained)
    if (parameter.tensor.device() != device)
      throw ConfigError(fmt::format("parameter '{}' is on {}, others on {}: move the model to one device",
                                    parameter.name, parameter.tensor.device().str(), device.str()));
  const DataParallelOptions& options = own.options_;
  if (own.alone_) return;
  if (!options.streams) {
    if (device.is_cpu()) return;
    throw ConfigError(fmt::format(
        "parameter '{}' is on {}: give DataParallelOptions::streams, the collectives of a process "
        "group that carries memory of that device, or move the model to the CPU",
        trained.front().name, device.str()));
  }
  if (options.streams->rank() != own.group_.rank() || options.streams->size() != own.group_.size())
    throw ConfigError(
        fmt::format("DataParallelOptions::streams has {} ranks, of which this is {}, and the group {}, of "
                    "which this is {}: give the same ranks in the same order",
                    options.streams->size(), options.streams->rank(), own.group_.size(), own.group_.rank()));
  if (own.updates_in_backward_) refuse("policy dear-eager");
  if (options.one_copy) refuse("one_copy");
  if (options.stochastic_rounding) refuse("stochastic_rounding");
  if (options.check_gradients != GradientCheck::none) refuse("check_gradients");
  if (options.check_parameters) refuse("check_parameters");
  if (options.record_trace) refuse("record_trace");
  if (!own.update_rules_.by_program() && own.optimizer_->norms() > 0)
    refuse("an optimiser that takes norms of whole tensors");
}

// [Note: idle parameters] The host does not read a mark in a gradient on the device ([Note: unused
// parameters]). So what no rank used in the first step, such as the pooler of a model that is trained without
// it, is left out of updates for good, which all ranks know then; any other parameter without a gradient has
// one of zeros.
void StreamTraining::find_idle(Trainer& own) {
  std::vector<std::uint8_t> mine;
  for (std::size_t i = 0; i < own.scanned_.trained.size(); ++i) mine.push_back(own.arrivals_.used(i) ? 1 : 0);
  const auto all = agreement::all_gather_values(own.group_, agreement::Subject::layer_order, mine);
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (std::all_of(all.begin(), all.end(), [i](const auto& used) { return used[i] == 0; }))
      own.idle_.insert(own.scanned_.trained[i].tensor.unsafeGetTensorImpl());
}

void StreamTraining::gradient_arrived(Trainer& own, std::size_t parameter) {
  const TrainedParameter& one = own.scanned_.trained[parameter];
  if (own.idle_.contains(one.tensor.unsafeGetTensorImpl()))
    throw ConfigError(
        fmt::format("rank {}: parameter '{}' got its first gradient after the first step, in which no rank "
                    "used it: on a device with streams use each parameter in the first step, or freeze it "
                    "with requires_grad_(false) until then",
                    own.group_.rank(), one.name));
  own.engine_->streams()->note_current();
}

void StreamTraining::read_marks(Trainer& own) {
  streams::StreamClock* marks = own.changes_->device_clock();
  if (marks == nullptr) return;
  own.record_.clock().in_seconds([marks](double from, double to) {
    const auto begin = static_cast<streams::StreamClock::Mark>(from),
               end = static_cast<streams::StreamClock::Mark>(to);
    // On a stream that no gradient came from, the device may still be on its way to a mark.
    return marks->reached(begin) && marks->reached(end) ? marks->seconds(begin, end) : 0;
  });
}

// The reductions of a step are on the communication stream; what is asked of them stays on the device.
streams::GradientsOnStream StreamTraining::final_gradients(Trainer& own) {
  own.throw_if_failed();
  own.program_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  own.require_step();
  own.or_fail([&] {
    own.close_gradients();
    own.registration_.enable();  // what is enqueued from here on may be read by the program's next operator
    own.engine_->reduce_gradients();
  });
  return own.engine_->gradients_on_stream();
}

}  // namespace dear::train
