#include "dear/systems/kfac/curvature.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/process_group/torch_types.h"
#include "dear/methods/kfac/factor.h"
#include "dear/systems/kfac/inverse.h"

namespace dear::systems::kfac {
namespace {

// Returns the graph as it goes on after so many steps.
Graph going_on(const Graph& graph, std::int64_t steps) {
  Graph shifted;
  for (LaneId lane = 0; lane < graph.lane_count(); ++lane) shifted.add_lane();
  for (StepId step = 0; step < graph.step_count(); ++step) {
    Rhythm rhythm = graph.rhythm_of(step);
    const auto period = static_cast<std::int64_t>(rhythm.period);
    rhythm.first = static_cast<std::uint32_t>((period - steps % period + rhythm.first) % period);
    shifted.add_step(graph.lane_of(step), rhythm);
  }
  for (const Edge& edge : graph.edges()) shifted.add_edge(edge);
  return shifted;
}

// A factor travels as its upper triangle, and a number: of its samples, or whether there is an inverse.
std::int64_t travelling(const Factor& factor) { return factor.packed_elements() + 1; }

template <typename T>
std::span<T> values_of(const torch::Tensor& matrix) {
  return {static_cast<T*>(matrix.mutable_data_ptr()), static_cast<std::size_t>(matrix.numel())};
}

}  // namespace

Curvature::Curvature(Group group, Job job, Plan plan, std::vector<FactorState>& states,
                     const Setting& setting)
    : group_(std::move(group)),
      job_(std::move(job)),
      plan_(std::move(plan)),
      states_(states),
      intervals_(setting.intervals),
      earlier_steps_(setting.steps),
      type_(setting.type),
      record_(setting.record),
      iteration_(methods::kfac::make_iteration(job_, Grouping(job_.workload, {}), plan_, intervals_)),
      group_of_(plan_.factors.size()),
      computed_(plan_.factors.size()),
      inverted_(plan_.factors.size()),
      reduced_(plan_.groups.size()),
      preconditioned_(job_.curvature.size()),
      offsets_(plan_.groups.size()),
      sums_(plan_.factors.size()),
      inverses_(plan_.factors.size()),
      reported_(plan_.factors.size()),
      received_(plan_.factors.size()) {
  for (StepId step = 0; step < iteration_.work.size(); ++step) {
    const auto [kind, index] = iteration_.work[step];
    if (kind == WorkKind::compute_factor) computed_[index] = step;
    if (kind == WorkKind::reduce_factors) reduced_[index] = step;
    if (kind == WorkKind::invert) inverted_[index] = step;
    if (kind == WorkKind::precondition) preconditioned_[index] = step;
    if (kind == WorkKind::update) update_ = step;
  }
  lay_out();
  conductor_ = std::make_unique<conductor::GraphConductor>(
      going_on(iteration_.graph, earlier_steps_), std::vector{iteration_.network},
      [this](Instance which) {
        start(which);
        return conductor::Started::under_way;
      },
      conductor::GraphConductor::Options{
          .rank = group_.rank(),
          .timeout = group_.timeout(),
          .record = setting.record,
          .name = [this](StepId step) { return methods::kfac::name_of(iteration_.work[step]); }});
}

Curvature::~Curvature() { conductor_->drain(); }

bool Curvature::keeps(FactorId factor) const {
  return !plan_.reduce_to_owner || plan_.placement[factor].value_or(group_.rank()) == group_.rank();
}

// ---- on the wire

void Curvature::lay_out() {
  const std::int64_t size = size_of(*process_group::dtype_of(type_));
  std::int64_t offset = 0;
  const auto aligned = [&] { return os::whole_cache_lines(offset * size) / size; };
  for (std::size_t group = 0; group < plan_.groups.size(); ++group) {
    offsets_[group] = offset = aligned();
    for (const FactorId factor : plan_.groups[group].factors) {
      group_of_[factor] = group;
      sums_[factor] = offset;
      offset += travelling(plan_.factors[factor]);
    }
  }
  for (FactorId factor = 0; factor < plan_.factors.size(); ++factor) {
    if (!plan_.placement[factor]) continue;
    inverses_[factor] = offset = aligned();
    offset += travelling(plan_.factors[factor]);
  }
  buffer_ = group_.allocate(os::whole_cache_lines(offset * size));
}

std::int64_t Curvature::elements_of(StepId step) const {
  const Work& work = iteration_.work[step];
  if (work.kind == WorkKind::broadcast) return travelling(plan_.factors[work.index]);
  const Plan::Group& group = plan_.groups[work.index];
  return group.elements + static_cast<std::int64_t>(group.factors.size());
}

void Curvature::start(Instance which) {
  const Work& work = iteration_.work[which.step];
  const DType dtype = *process_group::dtype_of(type_);
  Request request{.collective = Collective::broadcast,
                  .view = {.buffer = buffer_, .count = elements_of(which.step), .dtype = dtype},
                  .output = {},
                  .reduction = Reduction::sum,
                  .label = work.index};
  if (work.kind == WorkKind::broadcast) {
    request.root = *plan_.placement[work.index];
    request.view.offset_bytes = inverses_[work.index] * size_of(dtype);
  } else {
    const std::optional<int>& owner = plan_.groups[work.index].owner;
    request.collective = owner ? Collective::reduce : Collective::all_reduce;
    request.root = owner.value_or(0);
    request.view.offset_bytes = offsets_[work.index] * size_of(dtype);
  }
  group_.issue(request, [this, which](const CollectiveResult& result) {
    conductor_->ended({.span = {which, seconds_of(result.timing.begin), seconds_of(result.timing.end)},
                       .error = result.error});
  });
}

void Curvature::write(FactorId factor, const torch::Tensor& matrix, std::int64_t offset, double last) {
  const auto write_as = [&](auto* values) {
    using T = std::remove_pointer_t<decltype(values)>;
    const auto packed = static_cast<std::size_t>(plan_.factors[factor].packed_elements());
    const std::span<T> upper(values + offset, packed);
    if (matrix.defined()) {
      methods::kfac::pack_upper<T>(values_of<const T>(matrix), plan_.factors[factor].dimension, upper);
    } else {
      std::fill(upper.begin(), upper.end(), T{0});
    }
    values[offset + static_cast<std::int64_t>(packed)] = static_cast<T>(last);
  };
  type_ == at::kDouble ? write_as(reinterpret_cast<double*>(buffer_.data()))
                       : write_as(reinterpret_cast<float*>(buffer_.data()));
}

std::pair<torch::Tensor, double> Curvature::read(FactorId factor, std::int64_t offset) const {
  const std::int64_t dimension = plan_.factors[factor].dimension;
  const torch::Tensor matrix = torch::empty({dimension, dimension}, torch::dtype(type_));
  const auto read_as = [&](const auto* values) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(values)>>;
    const auto packed = static_cast<std::size_t>(plan_.factors[factor].packed_elements());
    methods::kfac::unpack_upper<T>(std::span<const T>(values + offset, packed), dimension,
                                   values_of<T>(matrix));
    return static_cast<double>(values[offset + static_cast<std::int64_t>(packed)]);
  };
  const double last = type_ == at::kDouble ? read_as(reinterpret_cast<const double*>(buffer_.data()))
                                           : read_as(reinterpret_cast<const float*>(buffer_.data()));
  return {matrix, last};
}

// ---- a step

void Curvature::report(FactorId factor, const Sum& sum, double begin_seconds) {
  conductor_->await(computed_[factor]);
  write(factor, sum.samples > 0 ? sum.products : torch::Tensor(), sums_[factor], sum.samples);
  reported_[factor] = true;
  conductor_->done(computed_[factor], begin_seconds, now_seconds());
}

void Curvature::commit() { conductor_->done(iteration_.commit); }

void Curvature::take(std::size_t group, const Taking& taking, FactorCounts& counts) {
  conductor_->await_done(reduced_[group], step_);
  if (taking.drop) return;
  for (const FactorId id : plan_.groups[group].factors) {
    if (!keeps(id)) continue;
    const double begin = now_seconds();
    average(id, taking, counts);
    note(id, false, reduced_[group], begin);
  }
}

void Curvature::average(FactorId id, const Taking& taking, FactorCounts& counts) {
  const Factor& factor = plan_.factors[id];
  auto [mean, samples] = read(id, sums_[id]);
  if (samples == 0) return;  // no rank used it
  const double scale = factor.side == Side::output ? taking.gradient_scale * taking.gradient_scale : 1;
  mean.mul_(1 / (samples * scale));
  if (!mean.isfinite().all().item<bool>()) {
    ++counts.nonfinite;
    return;
  }
  torch::Tensor& average = states_[id].average;
  if (!average.defined()) average = torch::eye(factor.dimension, mean.options());
  average.mul_(taking.ema).add_(mean, 1 - taking.ema);
}

void Curvature::note(FactorId factor, bool inverse, StepId step, double begin_seconds) {
  if (!record_) return;
  readings_.push_back({factor, inverse, {{step, step_}, begin_seconds, now_seconds()}});
}

// Returns the damping of each factor. With the correction A gets sqrt(damping) pi, and G sqrt(damping) / pi.
std::vector<double> Curvature::dampings(const Damping& damping) const {
  const std::size_t count = plan_.factors.size();
  if (!damping.pi_correction) return std::vector<double>(count, damping.value);
  std::vector<double> traces(count);  // of the mean diagonal
  for (FactorId id = 0; id < count; ++id) {
    const bool told_by_another = plan_.reduce_to_owner && !plan_.placement[id] && group_.rank() != 0;
    const torch::Tensor& average = states_[id].average;
    if (average.defined() && keeps(id) && !told_by_another)
      traces[id] = average.trace().item<double>() / static_cast<double>(plan_.factors[id].dimension);
  }
  // In between no other collective of the group is under way.
  if (plan_.reduce_to_owner && group_.size() > 1) {
    const auto all =
        agreement::all_gather_values(group_, agreement::Subject::state, std::exchange(traces, {}));
    traces.assign(count, 0);
    for (const std::vector<double>& theirs : all)
      std::transform(traces.begin(), traces.end(), theirs.begin(), traces.begin(), std::plus<>());
  }
  std::vector<double> result(count, damping.value);
  std::vector<double> of_inputs(job_.curvature.size()), of_outputs(job_.curvature.size());
  for (FactorId id = 0; id < count; ++id)
    (plan_.factors[id].side == Side::input ? of_inputs : of_outputs)[plan_.factors[id].layer] = traces[id];
  for (FactorId id = 0; id < count; ++id) {
    const auto [layer, side, dimension] = plan_.factors[id];
    const double pi = std::sqrt(of_inputs[layer] / of_outputs[layer]);
    const bool usable = std::isfinite(pi) && pi > 0;
    result[id] = std::sqrt(damping.value) * (!usable ? 1 : side == Side::input ? pi : 1 / pi);
  }
  return result;
}

void Curvature::invert(FactorId id, double damping, FactorCounts& counts) {
  const std::optional<int>& owner = plan_.placement[id];
  conductor_->run(inverted_[id], [&] {
    if (!inverts(id)) return;
    FactorState& state = states_[id];
    if (state.average.defined()) {
      const Inverse inverse = inverse_of(state.average, damping);
      counts.raised += inverse.raised > 0 ? 1 : 0;
      counts.given_up += inverse.given_up ? 1 : 0;
      state.inverse = inverse.matrix;
    }
    if (!owner) return;
    const torch::Tensor made = state.average.defined() ? state.inverse : torch::Tensor();
    write(id, made, inverses_[id], made.defined() ? 1 : 0);
  });
  received_[id] = owner && *owner != group_.rank();
}

// The correction of a damping takes both factors of a layer, which come in groups of their own.
void Curvature::renew(const std::optional<Taking>& taking, const std::optional<Damping>& damping,
                      FactorCounts& counts) {
  std::vector<bool> taken(plan_.groups.size(), !taking);
  const auto take_once = [&](std::size_t group) {
    if (!taken[group]) take(group, *taking, counts);
    taken[group] = true;
  };
  const auto take_all = [&] {
    for (std::size_t group = 0; group < taken.size(); ++group) take_once(group);
  };
  if (damping) {
    if (damping->pi_correction) take_all();
    const std::vector<double> each = dampings(*damping);
    for (const FactorId id : plan_.inversions) {
      take_once(group_of_[id]);
      invert(id, each[id], counts);
    }
  }
  take_all();
}

torch::Tensor Curvature::precondition(LayerId layer, const torch::Tensor& gradient) {
  torch::Tensor result;
  conductor_->run(preconditioned_[layer], [&] {
    const torch::Tensor* inverses[2] = {nullptr, nullptr};
    for (FactorId id = 0; id < plan_.factors.size(); ++id) {
      const Factor& factor = plan_.factors[id];
      if (factor.layer != layer) continue;
      FactorState& state = states_[id];
      if (received_[id]) {
        const double begin = now_seconds();
        if (const auto [matrix, there] = read(id, inverses_[id]); there != 0) state.inverse = matrix;
        received_[id] = false;
        note(id, true, inverted_[id], begin);
      }
      inverses[factor.side == Side::input ? 0 : 1] = &state.inverse;
    }
    const auto [of_inputs, of_outputs] = inverses;
    if (gradient.defined() && of_inputs->defined() && of_outputs->defined())
      result = of_outputs->matmul(gradient).matmul(*of_inputs);
  });
  return result;
}

void Curvature::end_step() {
  conductor_->done(update_);
  std::fill(reported_.begin(), reported_.end(), false);
  ++step_;
}

void Curvature::share_averages() {
  if (!plan_.reduce_to_owner) return;
  const DType dtype = *process_group::dtype_of(type_);
  for (FactorId id = 0; id < plan_.factors.size(); ++id) {
    const std::optional<int>& owner = plan_.placement[id];
    if (!owner) continue;
    torch::Tensor& average = states_[id].average;
    if (*owner == group_.rank()) write(id, average, inverses_[id], average.defined() ? 1 : 0);
    group_.perform({.collective = Collective::broadcast,
                    .view = {.buffer = buffer_,
                             .offset_bytes = inverses_[id] * size_of(dtype),
                             .count = travelling(plan_.factors[id]),
                             .dtype = dtype},
                    .output = {},
                    .root = *owner});
    if (*owner == group_.rank()) continue;
    const auto [matrix, there] = read(id, inverses_[id]);
    average = there != 0 ? matrix : torch::Tensor();
  }
}

}  // namespace dear::systems::kfac
