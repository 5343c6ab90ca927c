#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/methods/kfac/iteration.h"
#include "dear/methods/kfac/plan.h"
#include "dear/schedule/conductor/graph_conductor.h"
#include "dear/systems/kfac/sums.h"

namespace dear::systems::kfac {

using methods::kfac::Costs;
using methods::kfac::Factor;
using methods::kfac::FactorId;
using methods::kfac::FusionRule;
using methods::kfac::Intervals;
using methods::kfac::InverseCost;
using methods::kfac::Iteration;
using methods::kfac::Job;
using methods::kfac::LayerCurvature;
using methods::kfac::LinearCost;
using methods::kfac::PlacementRule;
using methods::kfac::Plan;
using methods::kfac::Side;
using methods::kfac::Strategy;
using methods::kfac::Travel;
using methods::kfac::Work;
using methods::kfac::WorkKind;

// A factor as it is kept from step to step, whatever plan is in force.
struct FactorState {
  torch::Tensor average;  // undefined before its first renewal, and on ranks that do not keep it
  torch::Tensor inverse;  // undefined before it was inverted
};

// Factors on this rank that came late, or could not be used as they were, so far.
struct FactorCounts {
  std::int64_t late_uses = 0, nonfinite = 0, raised = 0, given_up = 0;
};

// How sums are taken into running averages.
struct Taking {
  double ema = 0;             // the weight of what was
  double gradient_scale = 1;  // by what gradients of outputs were multiplied
  bool drop = false;          // they are waited for, and dropped
};

struct Damping {
  double value = 0;
  bool pi_correction = false;
};

// Factors and inverses of all layers under one plan in force: sums on their way between ranks, running
// averages, inverses. The order of its collectives is that of a graph (methods/kfac/iteration.h), which a
// GraphConductor runs; it issues them on a group that nobody else uses.
//
// In each step of the training the program calls report() for every factor that is due, under the passes or
// after them, then commit(), renew(), precondition() for every layer, and end_step().
class Curvature {
 public:
  struct Setting {
    Intervals intervals;
    std::int64_t steps = 0;  // that were taken under other plans
    bool record = false;
    at::ScalarType type = at::kFloat;  // fp32 or fp64
  };
  // Every rank makes it together. `states` are by factor of the plan, and outlive it.
  Curvature(Group group, Job job, Plan plan, std::vector<FactorState>& states, const Setting& setting);
  ~Curvature();  // waits for what is on its way
  Curvature(const Curvature&) = delete;
  Curvature& operator=(const Curvature&) = delete;

  [[nodiscard]] const Plan& plan() const { return plan_; }
  // Whether factors are renewed in this step, and inverses.
  [[nodiscard]] bool renews_factors() const { return !rests(intervals_.factors); }
  [[nodiscard]] bool renews_inverses() const { return !rests(intervals_.inverses); }

  // This rank's sum of a factor is complete, which may be of no samples at all. It may be changed afterwards.
  void report(FactorId factor, const Sum& sum, double begin_seconds);
  [[nodiscard]] bool reported(FactorId factor) const { return reported_[factor]; }
  void commit();
  // Renews what is due: factors where there is a Taking, inverses where there is a Damping. Each inverse
  // follows as soon as its sums of all ranks have come.
  void renew(const std::optional<Taking>& taking, const std::optional<Damping>& damping,
             FactorCounts& counts);
  // Waits for the inverses of the layer. Returns G^-1 gradient A^-1 of a matrix [outputs, inputs], or an
  // undefined tensor where there is no inverse yet. An undefined gradient has no result either, but is to be
  // given.
  torch::Tensor precondition(LayerId layer, const torch::Tensor& gradient);
  void end_step();

  // Sends running averages that one rank alone keeps to all. Every rank, between two steps.
  void share_averages();

  void throw_if_failed() const { conductor_->throw_if_failed(); }
  [[nodiscard]] double waited_seconds() const { return conductor_->waited_seconds(); }
  // Return what was done, with Setting::record.
  [[nodiscard]] std::vector<conductor::StepSpan> spans() const { return conductor_->spans(); }
  [[nodiscard]] std::vector<conductor::StepSpan> waits() const { return conductor_->waits(); }
  // A Reading takes out of the buffer what other ranks sent: sums into an average, or an inverse.
  struct Reading {
    FactorId factor = 0;
    bool inverse = false;
    conductor::StepSpan span;  // of the reduction, or the broadcast's inverse
  };
  [[nodiscard]] const std::vector<Reading>& readings() const { return readings_; }
  [[nodiscard]] const Work& work_of(StepId step) const { return iteration_.work[step]; }
  [[nodiscard]] bool inverts(FactorId factor) const {  // this rank
    return plan_.placement[factor].value_or(group_.rank()) == group_.rank();
  }
  [[nodiscard]] std::int64_t elements_of(StepId step) const;  // of a collective, as it is sent

 private:
  [[nodiscard]] bool rests(std::uint32_t period) const {
    return (earlier_steps_ + step_) % static_cast<std::int64_t>(period) != 0;
  }
  void take(std::size_t group, const Taking& taking, FactorCounts& counts);
  void average(FactorId factor, const Taking& taking, FactorCounts& counts);
  void invert(FactorId factor, double damping, FactorCounts& counts);
  [[nodiscard]] bool keeps(FactorId factor) const;
  void lay_out();
  void start(Instance which);
  [[nodiscard]] std::vector<double> dampings(const Damping& damping) const;
  // A matrix as it travels, and a number behind it. One that is undefined is written as zeros.
  void write(FactorId factor, const torch::Tensor& matrix, std::int64_t offset, double last);
  [[nodiscard]] std::pair<torch::Tensor, double> read(FactorId factor, std::int64_t offset) const;
  void note(FactorId factor, bool inverse, StepId step, double begin_seconds);

  Group group_;
  const Job job_;
  const Plan plan_;
  std::vector<FactorState>& states_;
  const Intervals intervals_;
  const std::int64_t earlier_steps_;
  const at::ScalarType type_;
  const bool record_;
  std::int64_t step_ = 0;
  Iteration iteration_;
  std::vector<std::size_t> group_of_;             // by factor
  std::vector<StepId> computed_, inverted_;       // by factor
  std::vector<StepId> reduced_, preconditioned_;  // by group; by layer
  StepId update_ = 0;
  std::vector<std::int64_t> offsets_, sums_, inverses_;  // in the buffer: of groups, of factors, of factors
  std::vector<bool> reported_;                           // by factor: in this step
  std::vector<bool> received_;  // by factor: an inverse comes into the buffer, and was not read yet
  Buffer buffer_;
  std::vector<Reading> readings_;
  std::unique_ptr<conductor::GraphConductor> conductor_;  // last: it ends first
};

}  // namespace dear::systems::kfac
