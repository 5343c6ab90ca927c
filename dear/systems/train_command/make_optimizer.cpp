#include "dear/systems/train_command/make_optimizer.h"

#include <functional>
#include <map>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "dear/train/optim/lamb.h"
#include "dear/train/optim/lars.h"

namespace dear::train_command {
namespace {

using Parameters = std::vector<torch::Tensor>;
using MakeOptimizer = std::unique_ptr<torch::optim::Optimizer> (*)(const Parameters& parameters,
                                                                   double learning_rate);

template <typename Optimizer, typename Options>
std::unique_ptr<torch::optim::Optimizer> make(const Parameters& parameters, double learning_rate) {
  return std::make_unique<Optimizer>(parameters, Options(learning_rate));
}

std::unique_ptr<torch::optim::Optimizer> make_sgd(const Parameters& parameters, double learning_rate) {
  return std::make_unique<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(learning_rate).momentum(0.9));
}

// Makers of optimisers by the names of optimizers().
const std::map<std::string, MakeOptimizer, std::less<>> kMakeOptimizer = {
    {"sgd", make_sgd},
    {"adam", make<torch::optim::Adam, torch::optim::AdamOptions>},
    {"adamw", make<torch::optim::AdamW, torch::optim::AdamWOptions>},
    {"rmsprop", make<torch::optim::RMSprop, torch::optim::RMSpropOptions>},
    {"adagrad", make<torch::optim::Adagrad, torch::optim::AdagradOptions>},
    {"lamb", make<LAMB, LAMBOptions>},
    {"lars", make<LARS, LARSOptions>},
};

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, const Parameters& parameters,
                                                        double learning_rate) {
  return kMakeOptimizer.at(name)(parameters, learning_rate);
}

}  // namespace dear::train_command
