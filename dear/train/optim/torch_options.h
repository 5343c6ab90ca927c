#pragma once

#include <torch/optim/optimizer.h>

#include "dear/train/optim/optimizer.h"

namespace dear::optim {

// Options of a parameter group of libtorch's optimisers, LAMB and LARS, by the names that Python's
// torch.optim gives them, but beta1 and beta2; a bool is 0 or 1. None of a class that is not known.
Optimizer::Options read_options(torch::optim::OptimizerOptions& options);
// Sets those that the class has; others are left alone.
void write_options(torch::optim::OptimizerOptions& options, const Optimizer::Options& from);

}  // namespace dear::optim
