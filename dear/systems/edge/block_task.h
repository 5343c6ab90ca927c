#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/range.h"

namespace dear::systems::edge {

struct BlockTaskShape {
  // "logistic": a unit is the weight of a feature, and a row has few features, which are as popular as words
  // are. "network": a unit is a hidden one with its weights, and rows are dense.
  std::string_view model = "logistic";
  std::int64_t units = 10'000;  // that blocks are made of
  int parts = 1;                // of the samples, one for each worker of a group
  std::int64_t samples = 400;   // of all parts
  int features = 16;            // of a row of "network"
  int nonzeros = 30;            // of a row of "logistic"
  double ridge = 1e-3;          // weight of |w|^2 / 2 in the loss
  std::uint64_t seed = 1;
  [[nodiscard]] Range part(int number) const {  // its samples
    return {.begin = samples * number / parts, .end = samples * (number + 1) / parts};
  }
};

// A classifier of two classes on drawn samples, whose gradient falls into blocks of units once the margins of
// the samples are known: what the whole model says of each. "logistic" is convex, "network" has one hidden
// layer with tanh. Fp64. A value: threads may share it.
class BlockTask {
 public:
  // ConfigError for a shape that cannot be, in one sentence.
  explicit BlockTask(const BlockTaskShape& shape);

  [[nodiscard]] const BlockTaskShape& shape() const { return shape_; }
  [[nodiscard]] int width() const;  // parameters of a unit
  [[nodiscard]] std::int64_t parameters() const { return shape_.units * width(); }
  [[nodiscard]] std::vector<double> start() const;

  // The margins of these samples, by the whole model.
  [[nodiscard]] std::vector<double> margins(Range samples, std::span<const double> model) const;
  // The gradient of these units in the mean loss of all samples, of what these samples have in it, without
  // the ridge. `block` is the part of the model; margins are by sample.
  void gradient(Range samples, Range units, std::span<const double> block, std::span<const double> margins,
                std::span<double> out) const;

  // As one process computes it, of all samples, with the ridge.
  [[nodiscard]] std::vector<double> whole_gradient(std::span<const double> model) const;
  [[nodiscard]] double loss(std::span<const double> model) const;

 private:
  struct Entry {
    std::int64_t unit = 0;
    double value = 0;
  };
  [[nodiscard]] bool is_network() const { return shape_.model == "network"; }
  [[nodiscard]] std::span<const double> row(std::int64_t sample) const;
  // A hidden unit makes this of a row; it is not yet weighted.
  [[nodiscard]] double activation(std::span<const double> row, const double* unit) const;
  [[nodiscard]] double slope(std::int64_t sample, double margin) const;  // of the mean loss in the margin

  BlockTaskShape shape_;
  std::vector<double> rows_;                 // "network": [sample][feature]
  std::vector<std::vector<Entry>> entries_;  // "logistic": by sample, ascending units
  std::vector<double> labels_;               // 1 or -1
};

}  // namespace dear::systems::edge
