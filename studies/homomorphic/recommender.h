#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dear/base/vocabulary/range.h"

namespace dear::studies::homomorphic {

// Neural collaborative filtering (He et al. 2017, doi:10.1145/3038912.3052569): a vector for each user and
// each item, and a network of two hidden layers that says whether the user likes the item. Its units are
// hyperbolic tangents: at the kink of a rectified unit a rounding error would make another gradient.
struct RecommenderShape {
  int users = 4000;
  int items = 2000;
  int width = 16;  // of the vectors
  int first = 32, second = 16;

  // The parameters in one flat vector: vectors of users and of items, then of each layer its weights and its
  // bias.
  [[nodiscard]] std::vector<Range> tensors() const;
  [[nodiscard]] std::int64_t parameters() const { return tensors().back().end; }
};

struct Ratings {
  std::vector<int> users, items;
  std::vector<float> liked;  // 0 or 1

  void clear();
};

// A recommender without parameters of its own; keeps room for its work. One thread at a time.
class Recommender {
 public:
  explicit Recommender(const RecommenderShape& shape) : shape_(shape), tensors_(shape.tensors()) {}

  // Returns the mean cross entropy of the ratings, at least one, and writes its gradient, which is zero for
  // the vectors of users and items without a rating.
  double loss_and_gradient(std::span<const float> parameters, const Ratings& ratings,
                           std::span<float> gradient);
  // Returns the mean cross entropy alone.
  double loss(std::span<const float> parameters, const Ratings& ratings);

 private:
  void forward(std::span<const float> parameters, const Ratings& ratings);
  [[nodiscard]] double loss_of_logits(const Ratings& ratings) const;

  RecommenderShape shape_;
  std::vector<Range> tensors_;
  std::vector<float> vectors_, first_, second_, logits_;              // by rating
  std::vector<float> of_vectors_, of_first_, of_second_, of_logits_;  // gradients of these
  std::vector<float> transposed_;
};

// Users and items are drawn by Zipf's law with exponent 1. A model of hidden factors that nobody sees, drawn
// by the seed, says who likes what.
class Opinions {
 public:
  Opinions(const RecommenderShape& shape, std::uint64_t seed);
  // Replaces the ratings by `count` others: the same for the same step and worker.
  void draw(std::int64_t step, int worker, int count, Ratings& ratings) const;

 private:
  static constexpr int kFactors = 3;
  [[nodiscard]] bool likes(int user, int item) const;

  int users_, items_;
  std::uint64_t seed_;
  std::vector<float> of_users_, of_items_;  // an inclination and factors of each
};

// Parameters to begin with, by the seed.
std::vector<float> initial_parameters(const RecommenderShape& shape, std::uint64_t seed);

}  // namespace dear::studies::homomorphic
