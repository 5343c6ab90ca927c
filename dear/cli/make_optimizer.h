#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

namespace dear::cli {

// One of optimizers() (train_options.h) by its name, with libtorch's defaults save where its summary says
// otherwise. std::out_of_range for any other name.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name,
                                                        const std::vector<torch::Tensor>& parameters,
                                                        double learning_rate);

}  // namespace dear::cli
