#include "dear/methods/edge/classification.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/methods/edge/draws.h"

namespace dear::methods::edge {
namespace {

void check(const ClassificationShape& shape) {
  const std::pair<const char*, int> counts[] = {{"devices", shape.devices},
                                                {"samples of a device", shape.samples},
                                                {"classes", shape.classes},
                                                {"features", shape.features},
                                                {"samples of the test", shape.tested}};
  for (const auto& [name, value] : counts)
    if (value < 1) throw ConfigError(fmt::format("{} {} cannot be: give at least 1", value, name));
  if (shape.classes < 2) throw ConfigError("one class needs no classifier: give at least 2");
  if (shape.hidden < 0)
    throw ConfigError(fmt::format("{} hidden units cannot be: give 0 or more", shape.hidden));
  if (!std::isfinite(shape.separation) || shape.separation < 0 || !std::isfinite(shape.ridge) ||
      shape.ridge < 0)
    throw ConfigError("separation and ridge must be finite numbers from 0 on");
}

// The labels of each device's samples.
std::vector<std::vector<int>> deal(const ClassificationShape& shape) {
  constexpr int kShards = 2;  // of a device
  std::vector<std::vector<int>> labels(index_of(shape.devices));
  codec::Draw draw = draws_of(shape.seed, Purpose::data, 1);
  std::vector<int> shards(index_of(shape.devices * kShards));
  std::iota(shards.begin(), shards.end(), 0);
  for (std::size_t place = shards.size(); place > 1; --place)
    std::swap(shards[place - 1], shards[draw.below(place)]);
  for (std::size_t device = 0; device < labels.size(); ++device)
    for (int sample = 0; sample < shape.samples; ++sample) {
      if (shape.split == Split::iid) {
        labels[device].push_back(static_cast<int>(draw.below(static_cast<std::uint64_t>(shape.classes))));
        continue;
      }
      const std::int64_t shard = shards[device * kShards + index_of(sample % kShards)];
      labels[device].push_back(
          static_cast<int>(shard * shape.classes / static_cast<std::int64_t>(shards.size())));
    }
  return labels;
}

}  // namespace

const std::vector<NamedSplit>& splits() {
  static const std::vector<NamedSplit> kSplits = {{"iid", Split::iid}, {"sorted", Split::sorted}};
  return kSplits;
}

Classification::Classification(const ClassificationShape& shape) : shape_(shape) {
  check(shape);
  codec::Draw draw = draws_of(shape.seed, Purpose::data, 0);
  means_.resize(index_of(shape.classes * shape.features));
  for (double& mean : means_) mean = shape.separation * normal(draw);
  const std::vector<std::vector<int>> labels = deal(shape);
  for (int device = 0; device < shape.devices; ++device) {
    codec::Draw own = draws_of(shape.seed, Purpose::data, 2, device);
    draw_samples(devices_.emplace_back(), own, labels[index_of(device)]);
  }
  std::vector<int> tested(index_of(shape.tested));
  for (std::size_t sample = 0; sample < tested.size(); ++sample)
    tested[sample] = static_cast<int>(sample % index_of(shape.classes));
  codec::Draw other = draws_of(shape.seed, Purpose::data, 3);
  draw_samples(tested_, other, tested);
}

void Classification::draw_samples(Samples& samples, codec::Draw& draw, std::span<const int> labels) const {
  samples.labels.assign(labels.begin(), labels.end());
  for (const int label : labels)
    for (int feature = 0; feature < shape_.features; ++feature)
      samples.features.push_back(means_[index_of(label * shape_.features + feature)] + normal(draw));
}

std::int64_t Classification::dimension() const {
  const std::int64_t inputs = shape_.hidden == 0 ? shape_.features : shape_.hidden;
  return (inputs + 1) * shape_.classes + static_cast<std::int64_t>(shape_.hidden) * (shape_.features + 1);
}

std::vector<double> Classification::start() const {
  std::vector<double> point(static_cast<std::size_t>(dimension()));
  if (shape_.hidden == 0) return point;
  codec::Draw draw = draws_of(shape_.seed, Purpose::model, 0);
  const std::size_t hidden = index_of(shape_.hidden), features = index_of(shape_.features);
  for (std::size_t i = 0; i < hidden * features; ++i)
    point[i] = normal(draw) / std::sqrt(static_cast<double>(features));
  for (std::size_t i = hidden * (features + 1); i < hidden * (features + 1 + index_of(shape_.classes)); ++i)
    point[i] = normal(draw) / std::sqrt(static_cast<double>(hidden));
  return point;
}

// A point has the hidden layer's weights [unit][feature] and biases, then those of the last layer.
double Classification::sample(const Samples& samples, std::size_t number, std::span<const double> point,
                              double scale, std::span<double> out, bool& right) const {
  const std::size_t features = index_of(shape_.features), classes = index_of(shape_.classes),
                    hidden = index_of(shape_.hidden);
  const std::span<const double> input{samples.features.data() + number * features, features};
  std::vector<double> units(hidden);
  for (std::size_t one = 0; one < hidden; ++one) {
    double sum = point[hidden * features + one];
    for (std::size_t i = 0; i < features; ++i) sum += point[one * features + i] * input[i];
    units[one] = std::tanh(sum);
  }
  const std::span<const double> last_input = hidden == 0 ? input : std::span<const double>(units);
  const std::size_t begin = hidden * (features + 1), width = last_input.size();
  std::vector<double> scores(classes);
  for (std::size_t one = 0; one < classes; ++one) {
    scores[one] = point[begin + classes * width + one];
    for (std::size_t i = 0; i < width; ++i) scores[one] += point[begin + one * width + i] * last_input[i];
  }
  const auto best = std::max_element(scores.begin(), scores.end());
  const std::size_t label = index_of(samples.labels[number]);
  right = static_cast<std::size_t>(best - scores.begin()) == label;
  const double most = *best, own = scores[label];
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  if (out.empty()) return std::log(sum) + most - own;
  std::vector<double> back(width);
  for (std::size_t one = 0; one < classes; ++one) {
    const double error = scale * (scores[one] / sum - (one == label ? 1 : 0));
    out[begin + classes * width + one] += error;
    for (std::size_t i = 0; i < width; ++i) {
      out[begin + one * width + i] += error * last_input[i];
      back[i] += error * point[begin + one * width + i];
    }
  }
  for (std::size_t one = 0; one < hidden; ++one) {
    const double error = back[one] * (1 - units[one] * units[one]);
    out[hidden * features + one] += error;
    for (std::size_t i = 0; i < features; ++i) out[one * features + i] += error * input[i];
  }
  return std::log(sum) + most - own;
}

void Classification::gradient(int device, std::span<const double> point, int batch, codec::Draw& draw,
                              std::span<double> out) const {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = shape_.ridge * point[i];
  const Samples& own = devices_[index_of(device)];
  const std::size_t taken = batch == 0 ? own.labels.size() : index_of(batch);
  bool right = false;
  for (std::size_t number = 0; number < taken; ++number)
    sample(own, batch == 0 ? number : draw.below(own.labels.size()), point, 1 / static_cast<double>(taken),
           out, right);
}

double Classification::loss(std::span<const double> point) const {
  double squares = 0, sum = 0;
  for (const double value : point) squares += value * value;
  bool right = false;
  for (const Samples& own : devices_)
    for (std::size_t number = 0; number < own.labels.size(); ++number)
      sum += sample(own, number, point, 1, {}, right);
  return shape_.ridge * squares / 2 + sum / (static_cast<double>(shape_.devices) * shape_.samples);
}

double Classification::accuracy(std::span<const double> point) const {
  int count = 0;
  for (std::size_t number = 0; number < tested_.labels.size(); ++number) {
    bool right = false;
    sample(tested_, number, point, 1, {}, right);
    count += right ? 1 : 0;
  }
  return static_cast<double>(count) / shape_.tested;
}

std::vector<int> Classification::classes_of(int device) const {
  std::vector<int> counts(index_of(shape_.classes));
  for (const int label : devices_[index_of(device)].labels) ++counts[index_of(label)];
  return counts;
}

}  // namespace dear::methods::edge
