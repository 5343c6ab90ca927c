#include "studies/sparse/training.h"

#include "studies/training/averaging.h"
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

#include "dear/schedule/codec/draw.h"

namespace dear::studies::sparse {
namespace {

void draw_batch(const Samples& all, codec::Draw draw, Samples& batch) {
  const std::size_t width = all.inputs.size() / all.labels.size();
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    const std::size_t sample = draw.below(all.labels.size());
    batch.labels[i] = all.labels[sample];
    std::copy_n(all.inputs.data() + sample * width, width, batch.inputs.data() + i * width);
  }
}

}  // namespace

TrainedAccuracy train(const Task& task, const Method& method, const TrainingOptions& options) {
  const std::unique_ptr<training::Averaging> averaging =
      training::make_averaging(task.model.tensors(), task.of_worker.size(), method, options.seed);
  const auto learning_rate = static_cast<float>(options.learning_rate);
  const Optimiser& optimiser = options.optimiser;
  const auto momentum = static_cast<float>(method && method->momentum > 0 ? 0 : optimiser.momentum);
  const auto decay = static_cast<float>(optimiser.decay);
  const auto batch_size = static_cast<std::size_t>(options.batch);
  Perceptron perceptron(task.model);
  Samples batch;
  batch.labels.resize(batch_size);
  batch.inputs.resize(batch_size * static_cast<std::size_t>(task.model.inputs));
  std::vector<float> parameters = task.initial, velocity(parameters.size()), mean(parameters.size());
  std::vector<std::vector<float>> gradients(task.of_worker.size(), std::vector<float>(parameters.size()));
  bool diverged = false;
  for (int step = 0; step < options.steps && !diverged; ++step) {
    for (std::size_t worker = 0; worker < gradients.size(); ++worker) {
      draw_batch(task.of_worker[worker], codec::Draw(options.seed, step, worker), batch);
      diverged |= !std::isfinite(perceptron.loss_and_gradient(parameters, batch, gradients[worker]));
    }
    averaging->average(gradients, parameters, step, mean);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const float gradient = mean[i] + decay * parameters[i];
      velocity[i] = momentum * velocity[i] + gradient;
      parameters[i] -= learning_rate * (optimiser.nesterov ? gradient + momentum * velocity[i] : velocity[i]);
    }
  }
  return {.validation = perceptron.accuracy(parameters, task.validation),
          .test = perceptron.accuracy(parameters, task.test),
          .diverged = diverged};
}

}  // namespace dear::studies::sparse
