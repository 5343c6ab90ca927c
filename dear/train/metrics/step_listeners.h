#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/train/metrics/callbacks.h"
#include "dear/train/metrics/step_metrics.h"

namespace dear::metrics {

// What a training has counted on this rank since it began, and its state now.
struct StepSample {
  double exposed_seconds = 0, communication_seconds = 0, bytes = 0;
  std::vector<std::int64_t> buckets{};
  std::string tuning = "off";
  std::string candidate{};
};

// The listeners of one training. While there is none, the end of a step is counted and nothing else is done.
// For the program's thread, but for the handles.
class StepListeners {
 public:
  using Sampler = std::function<StepSample()>;
  StepListeners(Group group, Sampler sampler) : group_(std::move(group)), sampler_(std::move(sampler)) {}

  // ConfigError for an `every` below 1. Report::reduced makes a group of its own: all ranks together, no
  // collective being under way.
  RemovableHandle add(StepCallback callback, const StepReports& reports);

  enum class End : std::uint8_t { taken, given_up };
  void count(End end);
  // Reports to whom a report is due; what a callback throws leaves it.
  void step_ended();
  // What was called for the step that ends next.
  void scaled(double loss_scale) { loss_scale_ = loss_scale; }
  void clipped(double norm) { gradient_norm_ = norm; }
  void found_nonfinite(const std::string& what) { nonfinite_ = what; }

 private:
  struct Listener {
    StepCallback callback;
    StepReports reports;
    std::optional<Group> among;  // the ranks, with Report::reduced
    Buffer numbers;
    StepSample last;
    double last_seconds;
    std::int64_t steps = 0, given_up = 0;  // since the last report
    std::optional<double> gradient_norm{};
    std::string nonfinite{};
  };
  void report(Listener& listener, const StepSample& now, double now_seconds);
  void reduce(Listener& listener, StepMetrics& metrics);

  Group group_;
  Sampler sampler_;
  std::int64_t ended_ = 0;
  double loss_scale_ = 1;
  std::optional<double> gradient_norm_;
  std::string nonfinite_;
  Callbacks<Listener> listeners_;
};

// Memory of this process that is in use, in bytes; 0 where the system does not tell.
std::int64_t resident_bytes();

}  // namespace dear::metrics
