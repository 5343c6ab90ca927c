#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/systems/kfac/kfac.h"

namespace dear::systems::kfac {

// The reason to leave out a layer that KfacOptions::exclude names.
inline constexpr const char* kExcluded = "it is excluded";

// A layer whose gradient is preconditioned: a matrix of `outputs` rows, whose columns are the weight's and,
// last, the bias.
struct MatrixLayer {
  std::string name;
  torch::Tensor weight;
  torch::Tensor bias;  // undefined where there is none, or where it is frozen
  std::function<bool()> in_training;
  std::int64_t inputs = 0, outputs = 0;  // the dimensions of its factors

  [[nodiscard]] bool convolution() const { return weight.dim() == 4; }
  [[nodiscard]] bool trains() const { return !in_training || in_training(); }
};

struct Choice {
  std::vector<MatrixLayer> layers;
  std::map<std::string, std::string> left_out;  // by name: why
};

// The layers that options leave. ConfigError for names to exclude that no layer has, for layers without a
// name or with the same one, for a factor that is too large, and where nothing is left; `rank` is for
// messages.
Choice choose(const std::vector<KfacLayer>& layers, const KfacOptions& options, int rank);

// ConfigError for options that are out of range.
void validate(const KfacOptions& options);

}  // namespace dear::systems::kfac
