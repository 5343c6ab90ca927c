#include "dear/train/optim/torch_options.h"

#include <tuple>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "dear/train/optim/lamb.h"
#include "dear/train/optim/lars.h"

namespace dear::optim {
namespace {

// Calls see(name, get, set) for each option; `get` and `set` are on numbers, of which betas have two.
template <typename Options, typename See>
void for_each_common(Options& o, const See& see) {
  see("lr", [&] { return o.lr(); }, [&](double v) { o.lr(v); });
  see("weight_decay", [&] { return o.weight_decay(); }, [&](double v) { o.weight_decay(v); });
}
template <typename See>
void for_each_option(torch::optim::SGDOptions& o, const See& see) {
  for_each_common(o, see);
  see("momentum", [&] { return o.momentum(); }, [&](double v) { o.momentum(v); });
  see("dampening", [&] { return o.dampening(); }, [&](double v) { o.dampening(v); });
  see("nesterov", [&] { return o.nesterov(); }, [&](double v) { o.nesterov(v != 0); });
}
template <typename AdamOptions, typename See>
void for_each_of_adam(AdamOptions& o, const See& see) {
  for_each_common(o, see);
  see("eps", [&] { return o.eps(); }, [&](double v) { o.eps(v); });
  see(
      "beta1", [&] { return std::get<0>(o.betas()); },
      [&](double v) { o.betas(std::make_tuple(v, std::get<1>(o.betas()))); });
  see(
      "beta2", [&] { return std::get<1>(o.betas()); },
      [&](double v) { o.betas(std::make_tuple(std::get<0>(o.betas()), v)); });
}
template <typename AdamOptions, typename See>
void for_each_option(AdamOptions& o, const See& see) {
  for_each_of_adam(o, see);
  see("amsgrad", [&] { return o.amsgrad(); }, [&](double v) { o.amsgrad(v != 0); });
}
template <typename Options, typename See>
void for_each_of_norms(Options& o, const See& see) {
  see(
      "decoupled", [&] { return o.decay() == WeightDecay::decoupled; },
      [&](double v) { o.decay(v != 0 ? WeightDecay::decoupled : WeightDecay::scaled); });
  see("adapt", [&] { return o.adapt(); }, [&](double v) { o.adapt(v != 0); });
}
template <typename See>
void for_each_option(LAMBOptions& o, const See& see) {
  for_each_of_adam(o, see);
  for_each_of_norms(o, see);
  see("bias_correction", [&] { return o.bias_correction(); }, [&](double v) { o.bias_correction(v != 0); });
  see("max_norm", [&] { return o.max_norm(); }, [&](double v) { o.max_norm(v); });
  see("max_ratio", [&] { return o.max_ratio(); }, [&](double v) { o.max_ratio(v); });
}
template <typename See>
void for_each_option(LARSOptions& o, const See& see) {
  for_each_common(o, see);
  for_each_of_norms(o, see);
  see("momentum", [&] { return o.momentum(); }, [&](double v) { o.momentum(v); });
  see("nesterov", [&] { return o.nesterov(); }, [&](double v) { o.nesterov(v != 0); });
  see("trust_coefficient", [&] { return o.trust_coefficient(); }, [&](double v) { o.trust_coefficient(v); });
  see("eps", [&] { return o.eps(); }, [&](double v) { o.eps(v); });
  see("larc", [&] { return o.larc(); }, [&](double v) { o.larc(v != 0); });
}
template <typename See>
void for_each_option(torch::optim::RMSpropOptions& o, const See& see) {
  for_each_common(o, see);
  see("alpha", [&] { return o.alpha(); }, [&](double v) { o.alpha(v); });
  see("eps", [&] { return o.eps(); }, [&](double v) { o.eps(v); });
  see("momentum", [&] { return o.momentum(); }, [&](double v) { o.momentum(v); });
  see("centered", [&] { return o.centered(); }, [&](double v) { o.centered(v != 0); });
}
template <typename See>
void for_each_option(torch::optim::AdagradOptions& o, const See& see) {
  for_each_common(o, see);
  see("lr_decay", [&] { return o.lr_decay(); }, [&](double v) { o.lr_decay(v); });
  see(
      "initial_accumulator_value", [&] { return o.initial_accumulator_value(); },
      [&](double v) { o.initial_accumulator_value(v); });
  see("eps", [&] { return o.eps(); }, [&](double v) { o.eps(v); });
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
  visit(options, [&](const char* name, const auto& get, const auto& /*set*/) {
    found[name] = static_cast<double>(get());
  });
  return found;
}

void write_options(torch::optim::OptimizerOptions& options, const Optimizer::Options& from) {
  visit(options, [&](const char* name, const auto& /*get*/, const auto& set) {
    if (const auto found = from.find(name); found != from.end()) set(found->second);
  });
}

}  // namespace dear::optim
