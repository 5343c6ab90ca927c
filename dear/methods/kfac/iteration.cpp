#include "dear/methods/kfac/iteration.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::kfac {
namespace {

class Builder {
 public:
  Builder(const Job& job, const Grouping& grouping, const Plan& plan, const Intervals& intervals)
      : job_(job), grouping_(grouping), plan_(plan), intervals_(intervals) {
    iteration_.compute = iteration_.graph.add_lane();
    iteration_.network = iteration_.graph.add_lane();
    for (FactorId factor = 0; factor < plan.factors.size(); ++factor)
      factor_of_[{plan.factors[factor].layer, plan.factors[factor].side}] = factor;
  }

  Iteration build() && {
    add_passes();
    iteration_.commit = compute({WorkKind::commit});
    add_collectives();
    add_inverses();
    add_preconditioning();
    return std::move(iteration_);
  }

 private:
  StepId compute(Work work, std::uint32_t period = 1) { return add(work, iteration_.compute, period); }
  StepId communicate(Work work, std::uint32_t period = 1) { return add(work, iteration_.network, period); }
  StepId add(Work work, LaneId lane, std::uint32_t period) {
    iteration_.work.push_back(work);
    return iteration_.graph.add_step(lane, {.period = period});
  }
  void edge(StepId from, StepId to, std::uint32_t back = 0) { iteration_.graph.add_edge({from, to, back}); }

  void add_factor(LayerId layer, Side side) {
    if (!job_.curvature[layer]) return;
    const FactorId factor = factor_of_.at({layer, side});
    computed_[factor] = compute({WorkKind::compute_factor, factor}, intervals_.factors);
  }

  void add_passes() {
    const auto layers = static_cast<LayerId>(job_.workload.layers.size());
    for (LayerId layer = 0; layer < layers; ++layer) {
      add_factor(layer, Side::input);
      compute({WorkKind::forward, layer});
    }
    for (LayerId layer = layers; layer-- > 0;) {
      backward_[layer] = compute({WorkKind::backward, layer});
      add_factor(layer, Side::output);
    }
  }

  // In the order in which they could begin; under Travel::after_backward factors come after all gradients.
  void add_collectives() {
    struct Planned {
      StepId after;  // the last of its steps on the compute lane
      Work work;
    };
    std::vector<Planned> planned;
    for (BucketId bucket = 0; bucket < grouping_.size(); ++bucket)
      planned.push_back({last_backward_of(bucket), {WorkKind::reduce_gradients, bucket}});
    const bool ready = plan_.travel == Travel::as_ready;
    for (std::uint32_t group = 0; group < plan_.groups.size(); ++group)
      planned.push_back({ready ? computed_.at(plan_.groups[group].factors.back()) : iteration_.commit,
                         {WorkKind::reduce_factors, group}});
    std::stable_sort(planned.begin(), planned.end(),
                     [](const Planned& a, const Planned& b) { return a.after < b.after; });
    for (const auto& [after, work] : planned) {
      const bool factors = work.kind == WorkKind::reduce_factors;
      const StepId step = communicate(work, factors ? intervals_.factors : 1);
      edge(after, step);
      if (factors) {
        for (const FactorId factor : plan_.groups[work.index].factors) {
          edge(computed_.at(factor), step);
          edge(step, computed_.at(factor), 1);
          reduced_[factor] = step;
        }
      } else {
        gradients_[work.index] = step;
      }
    }
  }

  [[nodiscard]] StepId last_backward_of(BucketId bucket) const {
    StepId last = 0;
    for (LayerId layer = 0; layer < job_.workload.layers.size(); ++layer)
      for (const TensorId tensor : job_.workload.layers[layer].tensors)
        if (grouping_.bucket_of(tensor) == bucket) last = std::max(last, backward_.at(layer));
    return last;
  }

  void add_inverses() {
    for (const FactorId factor : plan_.inversions) {
      const StepId inverse = compute({WorkKind::invert, factor}, intervals_.inverses);
      edge(reduced_.at(factor), inverse);
      edge(inverse, computed_.at(factor), 1);
      inverted_[factor] = inverse;
    }
    const StepId last = inverted_.at(plan_.inversions.back());
    for (const FactorId factor : plan_.inversions) {
      if (!plan_.placement[factor]) continue;
      const StepId sent = communicate({WorkKind::broadcast, factor}, intervals_.inverses);
      if (plan_.sending == Sending::after_inverses) edge(last, sent);
      edge(std::exchange(inverted_[factor], sent), sent);
    }
  }

  void add_preconditioning() {
    std::vector<StepId> before_update;
    for (LayerId layer = 0; layer < job_.curvature.size(); ++layer) {
      if (!job_.curvature[layer]) continue;
      const StepId step = compute({WorkKind::precondition, layer});
      for (const Side side : {Side::input, Side::output})
        edge(inverted_.at(factor_of_.at({layer, side})), step);
      for (const TensorId tensor : job_.workload.layers[layer].tensors)
        edge(gradients_.at(grouping_.bucket_of(tensor)), step);
    }
    const StepId update = compute({WorkKind::update});
    for (const auto& [bucket, step] : gradients_) edge(step, update);
  }

  const Job& job_;
  const Grouping& grouping_;
  const Plan& plan_;
  const Intervals& intervals_;
  Iteration iteration_;
  std::map<std::pair<LayerId, Side>, FactorId> factor_of_;
  std::map<LayerId, StepId> backward_;
  std::map<FactorId, StepId> computed_, reduced_, inverted_;  // inverted_: where every rank has the inverse
  std::map<BucketId, StepId> gradients_;
};

}  // namespace

std::string name_of(const Work& work) {
  constexpr std::array kNames{"forward {}",
                              "backward {}",
                              "commit",
                              "factor {}",
                              "reduction of factors, group {}",
                              "all-reduce of gradients, bucket {}",
                              "inverse of factor {}",
                              "broadcast of inverse {}",
                              "preconditioning of layer {}",
                              "update"};
  return fmt::format(fmt::runtime(kNames.at(static_cast<std::size_t>(work.kind))), work.index);
}

Iteration make_iteration(const Job& job, const Grouping& grouping, const Plan& plan,
                         const Intervals& intervals) {
  check(intervals);
  return Builder(job, grouping, plan, intervals).build();
}

}  // namespace dear::methods::kfac
