#include "dear/train/kfac/times.h"

#include <algorithm>
#include <map>
#include <utility>

#include "dear/base/vocabulary/error.h"

namespace dear::train::kfac {
namespace {

constexpr std::size_t kOfLayer = 4;  // numbers
constexpr std::size_t kOfCollectives = 4;

// Costs of a network of 10 Gbit/s and a core of a few years ago; better than nothing.
constexpr methods::kfac::LinearCost kUsualAllReduce{.start_seconds = 1e-4, .seconds_per_element = 6e-9};
constexpr methods::kfac::LinearCost kUsualBroadcast{.start_seconds = 5e-5, .seconds_per_element = 3e-9};
constexpr double kUsualInverse = 1e-10;  // seconds for the cube of the dimension

using Points = std::vector<std::pair<std::int64_t, double>>;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Points medians(const std::map<std::int64_t, std::vector<double>>& seconds) {
  Points points;
  for (const auto& [size, values] : seconds)
    if (const double middle = median(values); middle > 0) points.emplace_back(size, middle);
  return points;
}

methods::kfac::LinearCost cost_of(const Points& points, const methods::kfac::LinearCost& usual) {
  if (points.size() > 1) return methods::kfac::fit_linear(points);
  if (points.empty()) return usual;
  const double factor = points[0].second / usual.seconds(points[0].first);
  return {.start_seconds = usual.start_seconds * factor,
          .seconds_per_element = usual.seconds_per_element * factor};
}

}  // namespace

void PassTimes::used(std::size_t layer, methods::kfac::Side side, double begin_seconds, double end_seconds) {
  Moment& moment = side == methods::kfac::Side::input ? now_[layer].input : now_[layer].output;
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

Numbers numbers_of(const std::vector<LayerTimes>& layers, const Curvature* curvature) {
  std::map<std::int64_t, std::vector<double>> reductions, broadcasts, inverses;  // seconds by size
  if (curvature != nullptr) {
    for (const conductor::StepSpan& span : curvature->spans()) {
      const methods::kfac::Work& work = curvature->work_of(span.which.step);
      const double seconds = span.end_seconds - span.begin_seconds;
      if (work.kind == methods::kfac::WorkKind::reduce_factors)
        reductions[curvature->elements_of(span.which.step)].push_back(seconds);
      if (work.kind == methods::kfac::WorkKind::broadcast)
        broadcasts[curvature->elements_of(span.which.step)].push_back(seconds);
      if (work.kind == methods::kfac::WorkKind::invert && curvature->inverts(work.index))
        inverses[curvature->plan().factors[work.index].dimension].push_back(seconds);
    }
  }
  Numbers numbers;
  for (const LayerTimes& layer : layers)
    numbers.insert(numbers.end(), {layer.forward, layer.backward, layer.input_factor, layer.output_factor});
  const methods::kfac::LinearCost reduce = cost_of(medians(reductions), kUsualAllReduce);
  const methods::kfac::LinearCost broadcast = cost_of(medians(broadcasts), kUsualBroadcast);
  numbers.insert(numbers.end(), {reduce.start_seconds, reduce.seconds_per_element, broadcast.start_seconds,
                                 broadcast.seconds_per_element});
  for (const auto& [dimension, seconds] : medians(inverses))
    numbers.insert(numbers.end(), {static_cast<double>(dimension), seconds});
  return numbers;
}

methods::kfac::Job job_of(const std::vector<MatrixLayer>& layers, const Numbers& numbers) {
  methods::kfac::Job job;
  job.workload.name = "K-FAC";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const double* of_layer = numbers.data() + i * kOfLayer;
    job.workload.layers.push_back({.name = layers[i].name,
                                   .tensors = {},
                                   .forward_seconds = of_layer[0],
                                   .backward_seconds = of_layer[1]});
    job.curvature.emplace_back(methods::kfac::LayerCurvature{.inputs = layers[i].inputs,
                                                             .outputs = layers[i].outputs,
                                                             .input_factor_seconds = of_layer[2],
                                                             .output_factor_seconds = of_layer[3]});
  }
  return job;
}

methods::kfac::Costs costs_of(std::size_t layers, int ranks, const Numbers& numbers) {
  const double* collectives = numbers.data() + layers * kOfLayer;
  const methods::kfac::LinearCost reduce{.start_seconds = collectives[0],
                                         .seconds_per_element = collectives[1]};
  Points points;
  for (std::size_t at = layers * kOfLayer + kOfCollectives; at + 1 < numbers.size(); at += 2)
    points.emplace_back(static_cast<std::int64_t>(numbers[at]), numbers[at + 1]);
  methods::kfac::InverseCost invert = methods::kfac::InverseCost::cubic(0, kUsualInverse);
  if (points.size() > 1) invert = methods::kfac::fit_cubic(points);
  if (points.size() == 1) {
    const auto dimension = static_cast<double>(points[0].first);
    invert = methods::kfac::InverseCost::cubic(0, points[0].second / (dimension * dimension * dimension));
  }
  return {.ranks = ranks,
          .all_reduce = reduce,
          .reduce = {.start_seconds = reduce.start_seconds,
                     .seconds_per_element = reduce.seconds_per_element / 2},
          .broadcast = {.start_seconds = collectives[2], .seconds_per_element = collectives[3]},
          .invert = invert};
}

}  // namespace dear::train::kfac
