#include "studies/homomorphic/recommender.h"

#include "studies/training/gaussian.h"
#include "studies/training/layers.h"
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "dear/schedule/codec/draw.h"

namespace dear::studies::homomorphic {
namespace {

using training::at;
using training::part;

// Keys of what the seed draws.
enum Key : std::uint64_t { users, items, parameters, first_worker };

constexpr float kDeviationOfVectors = 0.05F;  // at first
// The network sees vectors times this, so that one learning rate suits it and them: a vector gets a gradient
// from few ratings of a batch, the network from all.
constexpr float kScaleOfVectors = 8;

// Zipf's law with exponent 1: the inverse of its continuous form.
int by_zipf(codec::Draw& draw, int count) {
  const double drawn = (1 + static_cast<double>(draw.uniform())) / 2;
  return std::min(static_cast<int>(std::exp(drawn * std::log(count + 1.0))) - 1, count - 1);
}

void squash(std::vector<float>& values) {
  for (float& value : values) value = std::tanh(value);
}
void squash_back(const std::vector<float>& units, std::vector<float>& gradient) {
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] *= 1 - units[i] * units[i];
}

}  // namespace

std::vector<Range> RecommenderShape::tensors() const {
  std::vector<Range> tensors;
  std::int64_t end = 0;
  for (const std::int64_t elements :
       {std::int64_t{users} * width, std::int64_t{items} * width, std::int64_t{2} * width * first,
        std::int64_t{first}, std::int64_t{first} * second, std::int64_t{second}, std::int64_t{second},
        std::int64_t{1}}) {
    tensors.push_back({end, end + elements});
    end += elements;
  }
  return tensors;
}

void Ratings::clear() {
  users.clear();
  items.clear();
  liked.clear();
}

void Recommender::forward(std::span<const float> parameters, const Ratings& ratings) {
  const std::size_t rows = ratings.liked.size();
  const auto width = static_cast<std::size_t>(shape_.width);
  const auto tensor = [&](std::size_t i) { return part(parameters, tensors_[i]); };
  vectors_.resize(rows * 2 * width);
  for (std::size_t row = 0; row < rows; ++row) {
    float* const vectors = vectors_.data() + row * 2 * width;
    std::copy_n(tensor(0).data() + static_cast<std::size_t>(ratings.users[row]) * width, width, vectors);
    std::copy_n(tensor(1).data() + static_cast<std::size_t>(ratings.items[row]) * width, width,
                vectors + width);
    for (std::size_t i = 0; i < 2 * width; ++i) vectors[i] *= kScaleOfVectors;
  }
  training::affine(vectors_, rows, tensor(2), tensor(3), first_);
  squash(first_);
  training::affine(first_, rows, tensor(4), tensor(5), second_);
  squash(second_);
  training::affine(second_, rows, tensor(6), tensor(7), logits_);
}

double Recommender::loss_of_logits(const Ratings& ratings) const {
  double loss = 0;
  for (std::size_t row = 0; row < logits_.size(); ++row) {
    const auto logit = static_cast<double>(logits_[row]);
    loss += std::max(logit, 0.0) - logit * static_cast<double>(ratings.liked[row]) +
            std::log1p(std::exp(-std::abs(logit)));
  }
  return loss / static_cast<double>(logits_.size());
}

double Recommender::loss(std::span<const float> parameters, const Ratings& ratings) {
  forward(parameters, ratings);
  return loss_of_logits(ratings);
}

double Recommender::loss_and_gradient(std::span<const float> parameters, const Ratings& ratings,
                                      std::span<float> gradient) {
  forward(parameters, ratings);
  const std::size_t rows = ratings.liked.size();
  const auto width = static_cast<std::size_t>(shape_.width);
  of_logits_.resize(rows);
  for (std::size_t row = 0; row < rows; ++row)
    of_logits_[row] = (1 / (1 + std::exp(-logits_[row])) - ratings.liked[row]) / static_cast<float>(rows);
  std::fill(gradient.begin(), gradient.end(), 0.0F);
  const auto back = [&](std::size_t layer, const std::vector<float>& inputs,
                        const std::vector<float>& of_outputs, std::vector<float>& of_inputs) {
    training::add_gradient(inputs, of_outputs, rows, at(gradient, tensors_[layer]),
                           at(gradient, tensors_[layer + 1]));
    training::pass_back(of_outputs, part(parameters, tensors_[layer]), rows, transposed_, of_inputs);
  };
  back(6, second_, of_logits_, of_second_);
  squash_back(second_, of_second_);
  back(4, first_, of_second_, of_first_);
  squash_back(first_, of_first_);
  back(2, vectors_, of_first_, of_vectors_);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const from = of_vectors_.data() + row * 2 * width;
    float* const user = at(gradient, tensors_[0]) + static_cast<std::size_t>(ratings.users[row]) * width;
    float* const item = at(gradient, tensors_[1]) + static_cast<std::size_t>(ratings.items[row]) * width;
    for (std::size_t i = 0; i < width; ++i) {
      user[i] += kScaleOfVectors * from[i];
      item[i] += kScaleOfVectors * from[width + i];
    }
  }
  return loss_of_logits(ratings);
}

Opinions::Opinions(const RecommenderShape& shape, std::uint64_t seed)
    : users_(shape.users), items_(shape.items), seed_(seed) {
  training::Gaussian user(seed, users), item(seed, items);
  of_users_.resize(static_cast<std::size_t>(users_) * (1 + kFactors));
  of_items_.resize(static_cast<std::size_t>(items_) * (1 + kFactors));
  for (float& value : of_users_) value = user();
  for (float& value : of_items_) value = item();
}

bool Opinions::likes(int user, int item) const {
  const float* const one = of_users_.data() + static_cast<std::size_t>(user) * (1 + kFactors);
  const float* const other = of_items_.data() + static_cast<std::size_t>(item) * (1 + kFactors);
  float sum = one[0] + other[0];
  for (int factor = 1; factor <= kFactors; ++factor) sum += one[factor] * other[factor];
  return sum > 0;
}

void Opinions::draw(std::int64_t step, int worker, int count, Ratings& ratings) const {
  codec::Draw draw(seed_, step, first_worker + static_cast<std::uint64_t>(worker));
  ratings.clear();
  for (int i = 0; i < count; ++i) {
    ratings.users.push_back(by_zipf(draw, users_));
    ratings.items.push_back(by_zipf(draw, items_));
    ratings.liked.push_back(likes(ratings.users.back(), ratings.items.back()) ? 1.0F : 0.0F);
  }
}

std::vector<float> initial_parameters(const RecommenderShape& shape, std::uint64_t seed) {
  training::Gaussian gaussian(seed, parameters);
  std::vector<float> values(static_cast<std::size_t>(shape.parameters()));
  const std::vector<Range> tensors = shape.tensors();
  const auto fill = [&](std::size_t tensor, float deviation) {
    for (std::int64_t i = tensors[tensor].begin; i < tensors[tensor].end; ++i)
      values[static_cast<std::size_t>(i)] = deviation * gaussian();
  };
  fill(0, kDeviationOfVectors);
  fill(1, kDeviationOfVectors);
  for (const std::size_t weights : {2, 4, 6}) {  // Glorot and Bengio 2010; biases are zero
    const auto inputs =
        static_cast<float>(tensors[weights].size()) / static_cast<float>(tensors[weights + 1].size());
    fill(weights, std::sqrt(1 / inputs));
  }
  return values;
}

}  // namespace dear::studies::homomorphic
