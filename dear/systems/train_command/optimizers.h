#pragma once

#include <string_view>
#include <vector>

namespace dear::train_command {

// An optimiser that a job may name.
struct OptimizerChoice {
  std::string_view name;
  std::string_view summary;
  double learning_rate;  // unless the user names one
};
const std::vector<OptimizerChoice>& optimizers();

}  // namespace dear::train_command
