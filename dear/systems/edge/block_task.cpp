#include "dear/systems/edge/block_task.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/edge/draws.h"

namespace dear::systems::edge {
namespace {

namespace method = methods::edge;

// A feature that is as popular as Zipf's law says, by the inverse of its distribution with density 1 / (1 +
// x).
std::int64_t popular(codec::Draw& draw, std::int64_t units) {
  const double place = std::exp(method::unit(draw) * std::log1p(static_cast<double>(units))) - 1;
  return std::min(units - 1, static_cast<std::int64_t>(place));
}

double log_one_plus_exp(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

}  // namespace

BlockTask::BlockTask(const BlockTaskShape& shape) : shape_(shape) {
  const auto require = [](bool fine, const std::string& what) {
    if (!fine) throw ConfigError(what);
  };
  require(shape.model == "logistic" || shape.model == "network",
          fmt::format("there is no model '{}' of blocks: take logistic or network", shape.model));
  require(shape.units >= 1 && shape.units <= 10'000'000,
          fmt::format("a model of {} units: give 1 to 10000000", shape.units));
  require(shape.parts >= 1 && shape.samples >= shape.parts && shape.samples <= 1'000'000,
          fmt::format("{} samples in {} parts: give each part one at least, and 1000000 at most to all",
                      shape.samples, shape.parts));
  require(shape.features >= 1 && shape.features <= 10'000 && shape.nonzeros >= 1 && shape.nonzeros <= 10'000,
          fmt::format("rows of {} features, or {} that are not zero: give 1 to 10000", shape.features,
                      shape.nonzeros));
  require(shape.ridge >= 0 && std::isfinite(shape.ridge),
          fmt::format("a ridge of {}: give a number of 0 or more", shape.ridge));
  codec::Draw teacher = method::draws_of(shape.seed, method::Purpose::model, 0);
  std::vector<double> truth(static_cast<std::size_t>(is_network() ? shape.features : shape.units));
  for (double& one : truth) one = method::normal(teacher);
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    codec::Draw draw = method::draws_of(shape.seed, method::Purpose::data, sample);
    double score = 0.1 * method::normal(draw);
    if (is_network()) {
      for (int feature = 0; feature < shape.features; ++feature) {
        rows_.push_back(method::normal(draw));
        score += truth[static_cast<std::size_t>(feature)] * rows_.back();
      }
      score = std::sin(score);  // which no line through the features tells
    } else {
      std::map<std::int64_t, double> row;
      for (int i = 0; i < shape.nonzeros; ++i) row[popular(draw, shape.units)] += 1;
      double square = 0;
      for (const auto& [unit, value] : row) square += value * value;
      std::vector<Entry>& entries = entries_.emplace_back();
      for (const auto& [unit, value] : row) {
        entries.push_back({.unit = unit, .value = value / std::sqrt(square)});
        score += truth[static_cast<std::size_t>(unit)] * entries.back().value;
      }
    }
    labels_.push_back(score < 0 ? -1 : 1);
  }
}

int BlockTask::width() const { return is_network() ? shape_.features + 2 : 1; }

std::vector<double> BlockTask::start() const {
  std::vector<double> model(static_cast<std::size_t>(parameters()), 0.0);
  if (!is_network()) return model;
  codec::Draw draw = method::draws_of(shape_.seed, method::Purpose::model, 1);
  const double of_row = 1 / std::sqrt(shape_.features),
               of_unit = 1 / std::sqrt(static_cast<double>(shape_.units));
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto place = static_cast<int>(i % static_cast<std::size_t>(width()));
    if (place != shape_.features)
      model[i] = method::normal(draw) * (place < shape_.features ? of_row : of_unit);
  }
  return model;
}

std::span<const double> BlockTask::row(std::int64_t sample) const {
  const auto features = static_cast<std::size_t>(shape_.features);
  return {rows_.data() + static_cast<std::size_t>(sample) * features, features};
}

// A unit has its weights of features, a bias, and its weight to the margin.
double BlockTask::activation(std::span<const double> row, const double* unit) const {
  double sum = unit[row.size()];
  for (std::size_t feature = 0; feature < row.size(); ++feature) sum += unit[feature] * row[feature];
  return std::tanh(sum);
}

double BlockTask::slope(std::int64_t sample, double margin) const {
  const double label = labels_[static_cast<std::size_t>(sample)];
  return -label / (1 + std::exp(label * margin)) / static_cast<double>(shape_.samples);
}

std::vector<double> BlockTask::margins(Range samples, std::span<const double> model) const {
  std::vector<double> found;
  for (std::int64_t sample = samples.begin; sample < samples.end; ++sample) {
    double& margin = found.emplace_back(0);
    if (is_network()) {
      for (const double* unit = model.data(); unit < model.data() + model.size(); unit += width())
        margin += unit[width() - 1] * activation(row(sample), unit);
    } else {
      for (const Entry& entry : entries_[static_cast<std::size_t>(sample)])
        margin += entry.value * model[static_cast<std::size_t>(entry.unit)];
    }
  }
  return found;
}

void BlockTask::gradient(Range samples, Range units, std::span<const double> block,
                         std::span<const double> margins, std::span<double> out) const {
  std::fill(out.begin(), out.end(), 0.0);
  for (std::int64_t sample = samples.begin; sample < samples.end; ++sample) {
    const double of_margin = slope(sample, margins[static_cast<std::size_t>(sample - samples.begin)]);
    if (!is_network()) {
      const std::vector<Entry>& entries = entries_[static_cast<std::size_t>(sample)];
      for (auto entry = std::lower_bound(entries.begin(), entries.end(), units.begin,
                                         [](const Entry& one, std::int64_t unit) { return one.unit < unit; });
           entry != entries.end() && entry->unit < units.end; ++entry)
        out[static_cast<std::size_t>(entry->unit - units.begin)] += of_margin * entry->value;
      continue;
    }
    const std::span<const double> features = row(sample);
    for (std::size_t at = 0; at < block.size(); at += static_cast<std::size_t>(width())) {
      const double* const unit = block.data() + at;
      double* const to = out.data() + at;
      const double made = activation(features, unit);
      const double of_sum = of_margin * unit[width() - 1] * (1 - made * made);
      for (std::size_t feature = 0; feature < features.size(); ++feature)
        to[feature] += of_sum * features[feature];
      to[features.size()] += of_sum;
      to[width() - 1] += of_margin * made;
    }
  }
}

std::vector<double> BlockTask::whole_gradient(std::span<const double> model) const {
  const Range all{.begin = 0, .end = shape_.samples};
  std::vector<double> sum(model.size());
  gradient(all, {.begin = 0, .end = shape_.units}, model, margins(all, model), sum);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += shape_.ridge * model[i];
  return sum;
}

double BlockTask::loss(std::span<const double> model) const {
  const std::vector<double> said = margins({.begin = 0, .end = shape_.samples}, model);
  double sum = 0, square = 0;
  for (std::size_t sample = 0; sample < said.size(); ++sample)
    sum += log_one_plus_exp(-labels_[sample] * said[sample]);
  for (const double one : model) square += one * one;
  return sum / static_cast<double>(shape_.samples) + shape_.ridge / 2 * square;
}

}  // namespace dear::systems::edge
