#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

namespace dear::train_command {

// One of optimizers() (optimizers.h) by its name, with libtorch's defaults save where its summary says
// otherwise. std::out_of_range for any other name.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name,
                                                        const std::vector<torch::Tensor>& parameters,
                                                        double learning_rate);

}  // namespace dear::train_command
