#include "studies/sparse/task.h"

#include "studies/training/gaussian.h"
#include <cmath>
#include <cstddef>
#include <utility>

namespace dear::studies::sparse {
namespace {

using training::Gaussian;

// Keys of codec::Draw, one for each thing that is drawn for a task.
enum Key : std::uint64_t { teacher, initial, validation, test, first_worker };

// Weights that keep the variance of rectified units (He et al. 2015, arXiv 1502.01852), times `scale`.
std::vector<float> random_parameters(const PerceptronShape& shape, Gaussian gaussian, float scale,
                                     float scale_of_bias) {
  std::vector<float> parameters;
  const std::vector<Range> tensors = shape.tensors();
  for (std::size_t i = 0; i < tensors.size(); i += 2) {
    const Range& weights = tensors[i];
    const Range& bias = tensors[i + 1];
    const float inputs = static_cast<float>(weights.size()) / static_cast<float>(bias.size());
    const float deviation = scale * std::sqrt(2 / inputs);
    while (std::cmp_less(parameters.size(), weights.end)) parameters.push_back(deviation * gaussian());
    while (std::cmp_less(parameters.size(), bias.end)) parameters.push_back(scale_of_bias * gaussian());
  }
  return parameters;
}

}  // namespace

Task make_task(const TaskShape& shape, std::uint64_t seed) {
  const std::vector<float> parameters_of_teacher =
      random_parameters(shape.model, Gaussian(seed, teacher), 1, 0.1F);
  Perceptron judge(shape.model);
  const auto draw_samples = [&](int count, std::uint64_t key) {
    Gaussian gaussian(seed, key);
    Samples samples;
    samples.inputs.resize(static_cast<std::size_t>(count) * static_cast<std::size_t>(shape.model.inputs));
    for (float& value : samples.inputs) value = gaussian();
    samples.labels.resize(static_cast<std::size_t>(count));
    samples.labels = judge.classify(parameters_of_teacher, samples);
    return samples;
  };
  Task task{.model = shape.model,
            .of_worker = {},
            .validation = draw_samples(shape.samples_of_validation, validation),
            .test = draw_samples(shape.samples_of_validation, test),
            .initial = random_parameters(shape.model, Gaussian(seed, initial), 1, 0)};
  for (int worker = 0; worker < shape.workers; ++worker)
    task.of_worker.push_back(
        draw_samples(shape.samples_of_worker, first_worker + static_cast<std::uint64_t>(worker)));
  return task;
}

}  // namespace dear::studies::sparse
