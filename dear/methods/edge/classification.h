#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dear/schedule/codec/draw.h"

namespace dear::methods::edge {

// How samples are dealt to devices: at random, or sorted by class, two shards a device (McMahan et al. 2017,
// arXiv 1602.05629).
enum class Split : std::uint8_t { iid, sorted };
struct NamedSplit {
  std::string_view name;
  Split split;
};
const std::vector<NamedSplit>& splits();

struct ClassificationShape {
  int devices = 20;
  int samples = 60;  // of a device
  int classes = 10;
  int features = 20;
  double separation = 0.6;  // standard deviation of class means in each feature; noise has 1
  Split split = Split::iid;
  int hidden = 0;       // units of a layer with tanh; 0 for logistic regression
  double ridge = 1e-3;  // weight of |x|^2 / 2 in the loss
  int tested = 1000;    // other samples, of all classes
  std::uint64_t seed = 1;
};

// A classifier on drawn data: a normal distribution for each class, softmax and cross-entropy. Logistic
// regression with a ridge is strongly convex. A value: threads may share it.
class Classification {
 public:
  // ConfigError for a shape that cannot be, in one sentence.
  explicit Classification(const ClassificationShape& shape);

  [[nodiscard]] const ClassificationShape& shape() const { return shape_; }
  [[nodiscard]] std::int64_t dimension() const;
  // Zeros; of a layer with hidden units drawn numbers.
  [[nodiscard]] std::vector<double> start() const;
  // The gradient of a device's loss on so many samples that are drawn with replacement, 0 for all.
  void gradient(int device, std::span<const double> point, int batch, codec::Draw& draw,
                std::span<double> out) const;
  [[nodiscard]] double loss(std::span<const double> point) const;      // of all devices' samples
  [[nodiscard]] double accuracy(std::span<const double> point) const;  // on the other samples
  // How many samples of each class a device has.
  [[nodiscard]] std::vector<int> classes_of(int device) const;

 private:
  struct Samples {
    std::vector<double> features;  // [sample][feature]
    std::vector<int> labels;
  };
  void draw_samples(Samples& samples, codec::Draw& draw, std::span<const int> labels) const;
  // Adds the gradient of one sample, times `scale`, to `out` where that is not empty; returns its loss.
  double sample(const Samples& samples, std::size_t number, std::span<const double> point, double scale,
                std::span<double> out, bool& right) const;

  ClassificationShape shape_;
  std::vector<double> means_;  // [class][feature]
  std::vector<Samples> devices_;
  Samples tested_;
};

}  // namespace dear::methods::edge
