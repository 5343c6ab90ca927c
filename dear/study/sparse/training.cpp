#include "dear/study/sparse/training.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dear/codec/codec.h"
#include "dear/codec/draw.h"
#include "dear/codec/feedback.h"

namespace dear::study::sparse {
namespace {

std::vector<codec::Segment> segments_of(const Task& task, const Compression& compression) {
  const std::vector<Range> tensors = task.model.tensors();
  if (compression.scope != Scope::tensor) return {{.range = {0, tensors.back().end}, .key = 0}};
  std::vector<codec::Segment> segments;
  for (const Range& tensor : tensors) segments.push_back({.range = tensor, .key = segments.size()});
  return segments;
}

// All workers' codecs and residuals, and the mean of what they carry.
class Communication {
 public:
  virtual ~Communication() = default;
  // Consumes the gradients. `mean` is overwritten.
  virtual void average(std::vector<std::vector<float>>& gradients, std::int64_t step,
                       std::span<float> mean) = 0;
};

class Dense final : public Communication {
 public:
  void average(std::vector<std::vector<float>>& gradients, std::int64_t /*step*/,
               std::span<float> mean) override {
    const float share = 1 / static_cast<float>(gradients.size());
    std::fill(mean.begin(), mean.end(), 0.0F);
    for (const std::vector<float>& gradient : gradients)
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i];
    for (float& value : mean) value *= share;
  }
};

// Codec: Reducible or Gatherable.
template <class Codec>
void keep(codec::Feedback& feedback, Codec& codec, const std::vector<std::byte>& payload, std::int64_t step,
          std::span<float> remainder) {
  const auto take_out = [&](std::span<float> values) { codec.take_out(payload.data(), step, values); };
  take_out(remainder);
  feedback.keep(remainder, take_out);
}

class Reduced final : public Communication {
 public:
  Reduced(const Task& task, const Compression& compression)
      : codec_(codec::make_reducible(compression, segments_of(task, compression))),
        feedback_(task.of_worker.size(), codec::Feedback(compression, task.model.parameters())),
        payload_(static_cast<std::size_t>(codec_->most_elements()) * sizeof(float)) {}

  void average(std::vector<std::vector<float>>& gradients, std::int64_t step,
               std::span<float> mean) override {
    const auto elements = static_cast<std::size_t>(codec_->elements(step));
    sum_.assign(elements, 0);
    const float share = 1 / static_cast<float>(gradients.size());
    for (std::size_t worker = 0; worker < gradients.size(); ++worker) {
      feedback_[worker].prepare(gradients[worker], {});
      codec_->encode(gradients[worker], step, payload_.data());
      const auto* const values = reinterpret_cast<const float*>(payload_.data());
      for (std::size_t i = 0; i < elements; ++i) sum_[i] += values[i];
      keep(feedback_[worker], *codec_, payload_, step, gradients[worker]);
    }
    for (float& value : sum_) value *= share;
    std::fill(mean.begin(), mean.end(), 0.0F);
    codec_->decode(reinterpret_cast<const std::byte*>(sum_.data()), step, mean);
  }

 private:
  std::unique_ptr<codec::Reducible> codec_;
  std::vector<codec::Feedback> feedback_;
  std::vector<std::byte> payload_;
  std::vector<float> sum_;
};

class Gathered final : public Communication {
 public:
  Gathered(const Task& task, const Compression& compression)
      : feedback_(task.of_worker.size(), codec::Feedback(compression, task.model.parameters())) {
    for (int worker = 0; std::cmp_less(worker, feedback_.size()); ++worker)
      codecs_.push_back(codec::make_gatherable(compression, segments_of(task, compression), worker));
    payload_.resize(static_cast<std::size_t>(codecs_.front()->most_bytes()));
  }

  void average(std::vector<std::vector<float>>& gradients, std::int64_t step,
               std::span<float> mean) override {
    const float share = 1 / static_cast<float>(gradients.size());
    std::fill(mean.begin(), mean.end(), 0.0F);
    for (std::size_t worker = 0; worker < gradients.size(); ++worker) {
      codec::Gatherable& codec = *codecs_[worker];
      feedback_[worker].prepare(gradients[worker], {});
      codec.encode(gradients[worker], step, payload_.data());
      codec.add(payload_.data(), step, share, mean);
      keep(feedback_[worker], codec, payload_, step, gradients[worker]);
    }
  }

 private:
  std::vector<std::unique_ptr<codec::Gatherable>> codecs_;
  std::vector<codec::Feedback> feedback_;
  std::vector<std::byte> payload_;
};

std::unique_ptr<Communication> make_communication(const Task& task, const Method& method,
                                                  std::uint64_t seed) {
  if (!method) return std::make_unique<Dense>();
  Compression compression = *method;
  if (compression.scheme == Scheme::random_k || compression.scheme == Scheme::random_block)
    compression.seed = seed;  // others draw nothing
  if (compression.gathers()) return std::make_unique<Gathered>(task, compression);
  return std::make_unique<Reduced>(task, compression);
}

void draw_batch(const Samples& all, codec::Draw draw, Samples& batch) {
  const std::size_t width = all.inputs.size() / all.labels.size();
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    const std::size_t sample = draw.below(all.labels.size());
    batch.labels[i] = all.labels[sample];
    std::copy_n(all.inputs.data() + sample * width, width, batch.inputs.data() + i * width);
  }
}

}  // namespace

std::string name_of(const Method& method) { return method ? method->text() : "dense"; }

TrainedAccuracy train(const Task& task, const Method& method, const TrainingOptions& options) {
  const std::unique_ptr<Communication> communication = make_communication(task, method, options.seed);
  const auto learning_rate = static_cast<float>(options.learning_rate);
  const auto momentum = static_cast<float>(method && method->momentum > 0 ? 0 : options.momentum);
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
    communication->average(gradients, step, mean);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      velocity[i] = momentum * velocity[i] + mean[i];
      parameters[i] -= learning_rate * velocity[i];
    }
  }
  return {.validation = perceptron.accuracy(parameters, task.validation),
          .test = perceptron.accuracy(parameters, task.test),
          .diverged = diverged};
}

}  // namespace dear::study::sparse
