#include "dear/train/elementwise_optimizer.h"

#include <array>
#include <typeinfo>
#include <utility>

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "dear/base/error.h"

namespace dear::train {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

template <typename O, typename Options>
std::unique_ptr<Optimizer> make(const Optimizer& original, std::vector<OptimizerParamGroup> groups) {
  return std::make_unique<O>(std::move(groups), static_cast<const Options&>(original.defaults()));
}

bool untouched(const Optimizer& original) { return original.state().empty(); }

// Adagrad makes its state when it is constructed.
bool untouched_adagrad(const Optimizer& original) {
  for (const auto& item : original.state()) {
    if (static_cast<const torch::optim::AdagradParamState&>(*item.second).step() != 0) return false;
  }
  return true;
}

struct Supported {
  const std::type_info& type;
  bool (*untouched)(const Optimizer&);
  std::unique_ptr<Optimizer> (*make)(const Optimizer&, std::vector<OptimizerParamGroup>);
};

const Supported* find(const Optimizer& original) {
  namespace o = torch::optim;
  static const std::array<Supported, 5> kTable{
      {{typeid(o::SGD), untouched, make<o::SGD, o::SGDOptions>},
       {typeid(o::Adam), untouched, make<o::Adam, o::AdamOptions>},
       {typeid(o::AdamW), untouched, make<o::AdamW, o::AdamWOptions>},
       {typeid(o::RMSprop), untouched, make<o::RMSprop, o::RMSpropOptions>},
       {typeid(o::Adagrad), untouched_adagrad, make<o::Adagrad, o::AdagradOptions>}}};
  for (const Supported& entry : kTable) {
    if (entry.type == typeid(original)) return &entry;
  }
  return nullptr;
}

}  // namespace

void ElementwiseOptimizer::require_supported(const Optimizer& original) {
  const Supported* entry = find(original);
  if (!entry) {
    throw ConfigError(
        fmt::format("the optimiser {} is not one whose update is known to be elementwise: use "
                    "torch::optim::SGD, Adam, AdamW, RMSprop or Adagrad",
                    c10::demangle(typeid(original).name())));
  }
  if (!entry->untouched(original)) {
    throw ConfigError(
        "the optimiser has taken steps already, and their state would be lost: construct DataParallel "
        "with a fresh one");
  }
}

ElementwiseOptimizer::ElementwiseOptimizer(const Optimizer& original,
                                           std::vector<std::vector<FlatRun>> runs_by_bucket) {
  std::vector<OptimizerParamGroup> groups;
  for (const OptimizerParamGroup& group : original.param_groups()) {
    groups.emplace_back(std::vector<torch::Tensor>{}, group.options().clone());
  }
  for (const auto& runs : runs_by_bucket) {
    auto& by_group = parameters_.emplace_back(groups.size());
    for (const FlatRun& run : runs) {
      torch::Tensor parameters = run.parameters;
      parameters.mutable_grad() = run.gradients;
      by_group[run.rule].push_back(parameters);
      groups[run.rule].params().push_back(parameters);
    }
  }
  twin_ = find(original)->make(original, std::move(groups));
}

void ElementwiseOptimizer::capture_options(const Optimizer& original) {
  const auto& from = original.param_groups();
  auto& to = twin_->param_groups();
  if (from.size() != to.size()) {
    throw ConfigError(
        fmt::format("the optimiser has {} parameter groups now and had {} when DataParallel was made: "
                    "construct a new DataParallel after adding one",
                    from.size(), to.size()));
  }
  for (std::size_t i = 0; i < to.size(); ++i) to[i].set_options(from[i].options().clone());
}

void ElementwiseOptimizer::update(BucketId bucket) {
  for (std::size_t i = 0; i < twin_->param_groups().size(); ++i) {
    twin_->param_groups()[i].params() = parameters_.at(bucket)[i];
  }
  twin_->step();
}

}  // namespace dear::train
