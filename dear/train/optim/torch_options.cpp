#include "dear/train/optim/torch_options.h"

#include <tuple>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include "dear/train/optim/lamb.h"
#include "dear/train/optim/lars.h"

namespace dear::optim {
namespace {

// Calls see(name, option) for each option, of which betas have two: a double, a bool or a WeightDecay.
template <typename Options, typename See>
void for_each_common(Options& o, const See& see) {
  see("lr", o.lr());
  see("weight_decay", o.weight_decay());
}
template <typename See>
void for_each_option(torch::optim::SGDOptions& o, const See& see) {
  for_each_common(o, see);
  see("momentum", o.momentum());
  see("dampening", o.dampening());
  see("nesterov", o.nesterov());
}
template <typename AdamOptions, typename See>
void for_each_of_adam(AdamOptions& o, const See& see) {
  for_each_common(o, see);
  see("eps", o.eps());
  see("beta1", std::get<0>(o.betas()));
  see("beta2", std::get<1>(o.betas()));
}
template <typename AdamOptions, typename See>
void for_each_option(AdamOptions& o, const See& see) {
  for_each_of_adam(o, see);
  see("amsgrad", o.amsgrad());
}
template <typename Options, typename See>
void for_each_of_norms(Options& o, const See& see) {
  see("decoupled", o.decay());
  see("adapt", o.adapt());
}
template <typename See>
void for_each_option(LAMBOptions& o, const See& see) {
  for_each_of_adam(o, see);
  for_each_of_norms(o, see);
  see("bias_correction", o.bias_correction());
  see("max_norm", o.max_norm());
  see("max_ratio", o.max_ratio());
}
template <typename See>
void for_each_option(LARSOptions& o, const See& see) {
  for_each_common(o, see);
  for_each_of_norms(o, see);
  see("momentum", o.momentum());
  see("nesterov", o.nesterov());
  see("trust_coefficient", o.trust_coefficient());
  see("eps", o.eps());
  see("larc", o.larc());
}
template <typename See>
void for_each_option(torch::optim::RMSpropOptions& o, const See& see) {
  for_each_common(o, see);
  see("alpha", o.alpha());
  see("eps", o.eps());
  see("momentum", o.momentum());
  see("centered", o.centered());
}
template <typename See>
void for_each_option(torch::optim::AdagradOptions& o, const See& see) {
  for_each_common(o, see);
  see("lr_decay", o.lr_decay());
  see("initial_accumulator_value", o.initial_accumulator_value());
  see("eps", o.eps());
}

double plain(double value) { return value; }
bool plain(bool value) { return value; }
bool plain(WeightDecay decay) { return decay == WeightDecay::decoupled; }

void set(double& option, double value) { option = value; }
void set(bool& option, double value) { option = value != 0; }
void set(WeightDecay& option, double value) {
  option = value != 0 ? WeightDecay::decoupled : WeightDecay::scaled;
}

// Whether the options are of this class; then calls see().
template <typename Options, typename See>
bool is_of(torch::optim::OptimizerOptions& options, const See& see) {
  auto* mine = dynamic_cast<Options*>(&options);
  if (mine != nullptr) for_each_option(*mine, see);
  return mine != nullptr;
}

template <typename See>
void visit(torch::optim::OptimizerOptions& options, const See& see) {
  static_cast<void>(
      is_of<torch::optim::SGDOptions>(options, see) || is_of<torch::optim::AdamOptions>(options, see) ||
      is_of<torch::optim::AdamWOptions>(options, see) || is_of<torch::optim::RMSpropOptions>(options, see) ||
      is_of<torch::optim::AdagradOptions>(options, see) || is_of<LAMBOptions>(options, see) ||
      is_of<LARSOptions>(options, see));
}

}  // namespace

Optimizer::Options read_options(torch::optim::OptimizerOptions& options) {
  Optimizer::Options found;
  visit(options, [&](const char* name, auto& option) { found[name] = static_cast<double>(plain(option)); });
  return found;
}

void write_options(torch::optim::OptimizerOptions& options, const Optimizer::Options& from) {
  visit(options, [&](const char* name, auto& option) {
    if (const auto found = from.find(name); found != from.end()) set(option, found->second);
  });
}

void save_options(torch::serialize::OutputArchive& archive, const torch::optim::OptimizerOptions& options) {
  visit(*options.clone(),
        [&](const char* name, auto& option) { archive.write(name, c10::IValue(plain(option))); });
}

void load_options(torch::serialize::InputArchive& archive, torch::optim::OptimizerOptions& options) {
  visit(options, [&](const char* name, auto& option) {
    c10::IValue value;
    archive.read(name, value);
    set(option, value.isBool() ? static_cast<double>(value.toBool()) : value.toDouble());
  });
}

}  // namespace dear::optim
