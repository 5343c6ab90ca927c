#include "dear/systems/kfac/times.h"

#include <algorithm>
#include <map>
#include <utility>

#include "dear/base/vocabulary/spread.h"

namespace dear::systems::kfac {
namespace {

// Costs of a network of 10 Gbit/s and a core of a few years ago; better than nothing.
constexpr LinearCost kUsualAllReduce{.start_seconds = 1e-4, .seconds_per_element = 6e-9};
constexpr LinearCost kUsualBroadcast{.start_seconds = 5e-5, .seconds_per_element = 3e-9};
constexpr double kUsualInverse = 1e-10;  // seconds for the cube of the dimension

using Points = std::vector<std::pair<std::int64_t, double>>;

LinearCost cost_of(const Points& points, const LinearCost& usual) {
  if (points.size() > 1) return methods::kfac::fit_linear(points);
  if (points.empty()) return usual;
  const double factor = points[0].second / usual.seconds(points[0].first);
  return {.start_seconds = usual.start_seconds * factor,
          .seconds_per_element = usual.seconds_per_element * factor};
}

}  // namespace

void PassTimes::used(std::size_t layer, Side side, double begin_seconds, double end_seconds) {
  Moment& moment = side == Side::input ? now_[layer].input : now_[layer].output;
  if (moment.uses++ == 0) moment.begin = begin_seconds;
  moment.end = end_seconds;
  moment.busy += end_seconds - begin_seconds;
}

void PassTimes::reorder(const std::vector<std::size_t>& order) {
  std::vector<OfLayer> ordered;
  for (const std::size_t layer : order) ordered.push_back(now_[layer]);
  now_ = std::move(ordered);
}

// The forward of a layer is what lies between its A and the A of the next; its backward what lies between the
// G of the next and its own. What lies between the last A and the first G is half this, half that.
void PassTimes::end_step() {
  ++steps_;
  const auto between = [](const Moment& before, const Moment& after) {
    return before.uses == 0 || after.uses == 0 ? 0 : std::max(0.0, after.begin - before.end);
  };
  for (std::size_t i = 0; i < now_.size(); ++i) {
    const bool last = i + 1 == now_.size();
    const double turn = between(now_[i].input, now_[i].output) / 2;
    sums_[i].forward += last ? turn : between(now_[i].input, now_[i + 1].input);
    sums_[i].backward += last ? turn : between(now_[i + 1].output, now_[i].output);
    sums_[i].input_factor += now_[i].input.busy;
    sums_[i].output_factor += now_[i].output.busy;
    now_[i] = {};
  }
}

std::vector<LayerTimes> PassTimes::means() const {
  std::vector<LayerTimes> means = sums_;
  const double steps = static_cast<double>(std::max<std::int64_t>(steps_, 1));
  for (LayerTimes& layer : means)
    layer = {layer.forward / steps, layer.backward / steps, layer.input_factor / steps,
             layer.output_factor / steps};
  return means;
}

Job job_of(const std::vector<MatrixLayer>& layers, const std::vector<LayerTimes>& times) {
  Job job;
  job.workload.name = "K-FAC";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    job.workload.layers.push_back({.name = layers[i].name,
                                   .tensors = {},
                                   .forward_seconds = times[i].forward,
                                   .backward_seconds = times[i].backward});
    job.curvature.emplace_back(LayerCurvature{.inputs = layers[i].inputs,
                                              .outputs = layers[i].outputs,
                                              .input_factor_seconds = times[i].input_factor,
                                              .output_factor_seconds = times[i].output_factor});
  }
  return job;
}

std::vector<MeasuredWork> measured_by(const Curvature& curvature) {
  std::map<std::pair<WorkKind, std::int64_t>, std::vector<double>> seconds;
  for (const conductor::StepSpan& span : curvature.spans()) {
    const Work& work = curvature.work_of(span.which.step);
    std::int64_t size = 0;
    if (work.communicates()) {
      size = curvature.elements_of(span.which.step);
    } else if (work.kind == WorkKind::invert && curvature.inverts(work.index)) {
      size = curvature.plan().factors[work.index].dimension;
    } else {
      continue;
    }
    seconds[{work.kind, size}].push_back(span.end_seconds - span.begin_seconds);
  }
  std::vector<MeasuredWork> medians;
  for (const auto& [work, values] : seconds)
    if (const double middle = spread_of(values).median; middle > 0)
      medians.push_back({work.first, work.second, middle});
  return medians;
}

Costs costs_of(int ranks, const std::vector<MeasuredWork>& measured) {
  const auto points_of = [&](WorkKind kind) {
    Points points;
    for (const MeasuredWork& work : measured)
      if (work.kind == kind) points.emplace_back(work.size, work.seconds);
    return points;
  };
  const LinearCost reduce = cost_of(points_of(WorkKind::reduce_factors), kUsualAllReduce);
  const Points points = points_of(WorkKind::invert);
  InverseCost invert = InverseCost::cubic(0, kUsualInverse);
  if (points.size() > 1) invert = methods::kfac::fit_cubic(points);
  if (points.size() == 1) {
    const auto dimension = static_cast<double>(points[0].first);
    invert = InverseCost::cubic(0, points[0].second / (dimension * dimension * dimension));
  }
  return {.ranks = ranks,
          .all_reduce = reduce,
          .reduce = {.start_seconds = reduce.start_seconds,
                     .seconds_per_element = reduce.seconds_per_element / 2},
          .broadcast = cost_of(points_of(WorkKind::broadcast), kUsualBroadcast),
          .invert = invert};
}

}  // namespace dear::systems::kfac
