#include "dear/train/data_parallel/reports.h"

#include <cstdint>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/error.h"
#include "dear/train/data_parallel/trainer.h"

namespace dear::train {

namespace {

[[noreturn]] void refuse_without_recording() {
  throw ConfigError("nothing was recorded: set DataParallelOptions::record_trace");
}

}  // namespace

Trace Reports::trace() {
  if (!own_.options_.record_trace) refuse_without_recording();
  own_.synchronize();
  return {
      .title = fmt::format("policy {}, {}", own_.engine().schedule().policy(),
                           counted(index_of(own_.group_.size()), "rank")),
      .network = own_.group_.modelled_network().empty() ? "" : "modelled: " + own_.group_.modelled_network(),
      .spans = own_.record_.spans(*own_.engine_)};
}

Workload Reports::profile() {
  if (!own_.options_.record_trace) refuse_without_recording();
  own_.synchronize();
  Workload workload = measured();
  workload.device = cpu_device(at::get_num_threads());
  return workload;
}

Workload Reports::measured() const {
  Workload workload = own_.record_.measured(own_.engine(), own_.group_.size());
  for (const torch::Tensor& one : own_.scanned_.buffers)
    workload.buffer_bytes += one.numel() * one.element_size();
  workload.buffers = std::ssize(own_.scanned_.buffers);
  return workload;
}

double Reports::clock_now() {
  streams::StreamClock* marks = own_.changes_->device_clock();
  return marks != nullptr ? static_cast<double>(marks->mark()) : now_seconds();
}

DataParallelStatistics Reports::statistics() const {
  DataParallelStatistics all{.iterations = own_.steps_alone_};
  if (!own_.alone_) all = own_.record_.statistics(own_.engine_.get());
  for (const auto& counts : own_.counts_beside_) {
    const PartOfTraining::Counts more = counts();
    all.exposed_seconds += more.exposed_seconds;
    all.communication_seconds += more.communication_seconds;
    all.bytes += more.bytes;
  }
  return all;
}

double Reports::exposed_seconds() const {
  double seconds = own_.alone_ ? 0 : own_.record_.exposed_seconds(own_.engine_.get());
  for (const auto& counts : own_.counts_beside_) seconds += counts().exposed_seconds;
  return seconds;
}

metrics::StepSample Reports::sample() const {
  const DataParallelStatistics now = statistics();
  if (!own_.engine_)
    return {.exposed_seconds = now.exposed_seconds,
            .communication_seconds = now.communication_seconds,
            .bytes = now.bytes};
  const auto [tuning, candidate] = own_.changes_->standing();
  return {.exposed_seconds = now.exposed_seconds,
          .communication_seconds = now.communication_seconds,
          .bytes = now.bytes,
          .buckets = own_.engine_->model().bucket_bytes(),
          .tuning = tuning,
          .candidate = candidate};
}

namespace {

std::int64_t bytes_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  if (tensor.layout() != torch::kStrided) return bytes_of(tensor._indices()) + bytes_of(tensor._values());
  return static_cast<std::int64_t>(tensor.nbytes());
}

}  // namespace

// Before the first step(), and where a rank trains alone, everything is the program's own.
MemoryReport Reports::memory() const {
  MemoryReport report;
  if (own_.engine_) report = own_.engine_->memory();
  if (!own_.has_state()) {
    for (const TrainedParameter& parameter : own_.scanned_.trained) {
      if (!own_.engine_) report.parameters += bytes_of(parameter.tensor);
      if (!own_.engine_) report.gradients += bytes_of(parameter.tensor.grad());
      if (const std::optional<OptimizerState> state = own_.optimizer_->state(parameter.tensor))
        for (const auto& [name, vector] : state->vectors) report.optimizer_state += bytes_of(vector);
    }
  }
  for (const torch::Tensor& tensor : own_.scanned_.frozen) report.frozen += bytes_of(tensor);
  for (const torch::Tensor& tensor : own_.scanned_.buffers) report.frozen += bytes_of(tensor);
  report.staging = own_.gradient_changes.bytes() + own_.changes_->decision().buffer.bytes() +
                   (own_.buffer_exchange_ ? own_.buffer_exchange_->bytes() : 0);
  report.trace = own_.record_.bytes(own_.engine_.get());
  return report;
}

}  // namespace dear::train
