#include "dear/systems/train_command/optimizers.h"

namespace dear::train_command {

const std::vector<OptimizerChoice>& optimizers() {
  static const std::vector<OptimizerChoice> kTable = {
      {"adamw", "Adam with decoupled weight decay 0.01", 1e-3},
      {"adam", "Adam", 1e-3},
      {"sgd", "stochastic gradient descent with momentum 0.9", 0.1},
      {"rmsprop", "RMSprop", 5e-4},
      {"adagrad", "Adagrad", 1e-2},
      {"lamb", "LAMB: Adam scaled by the norms of tensors, weight decay 0.01", 1e-2},
      {"lars", "LARS: SGD with momentum 0.9 scaled by the norms of tensors", 10},
  };
  return kTable;
}

}  // namespace dear::train_command
