#include "dear/systems/kfac/preconditioner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ranges>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/autograd/operator_observer.h"

namespace dear::systems::kfac {

namespace {

std::string text_of(const KfacOptions& options, const std::vector<MatrixLayer>& layers) {
  std::string text = fmt::format("{} '{}', damping {}, pi {}, ema {}, kl {}, every {} and {}, plan after {}",
                                 options.strategy, options.fusion, options.damping, options.pi_correction,
                                 options.ema, options.kl_clip.value_or(0), options.factor_every,
                                 options.inverse_every, options.replan_after);
  for (const MatrixLayer& layer : layers)
    text += fmt::format("; {} {} x {} {}", layer.name, layer.outputs, layer.inputs,
                        c10::toString(layer.weight.scalar_type()));
  return text;
}

Strategy strategy_of(const KfacOptions& options) {
  static const std::map<std::string, FusionRule> kRules{{"alone", FusionRule::alone},
                                                        {"threshold", FusionRule::threshold},
                                                        {"rule", FusionRule::by_rule},
                                                        {"exact", FusionRule::exact},
                                                        {"together", FusionRule::together}};
  Strategy strategy = methods::kfac::find_strategy(options.strategy);
  if (options.fusion.empty()) return strategy;
  const auto rule = kRules.find(options.fusion);
  if (rule == kRules.end())
    throw ConfigError(fmt::format("there is no fusion of factors '{}': choose one of {}", options.fusion,
                                  fmt::join(std::views::keys(kRules), ", ")));
  strategy.fusion = rule->second;
  return strategy;
}

void require_learning_rate(int rank, double learning_rate) {
  if (learning_rate >= 0 && std::isfinite(learning_rate)) return;
  throw ConfigError(
      fmt::format("rank {}: K-FAC cannot clip by a learning rate of {}: give a finite number of at least 0",
                  rank, learning_rate));
}

}  // namespace

Preconditioner::Preconditioner(const std::vector<KfacLayer>& layers, DataParallel& dp, KfacOptions options)
    : options_(std::move(options)), training_(dp), times_(0) {
  training_.settle_for("making a Kfac");
  const Group& group = training_.group();
  training_.meet();
  agreement::check_together(group, [&] {
    training_.claim();
    validate(options_);
    static_cast<void>(strategy_of(options_));
    training_.require_usable();
    choice_ = choose(layers, options_, group.rank());
  });
  agree(group, "K-FAC", text_of(options_, choice_.layers));
  group_ = group.duplicate();
  for (const MatrixLayer& layer : choice_.layers)
    if (layer.weight.scalar_type() == at::kDouble) type_ = at::kDouble;
  given_up_ = training_.steps_given_up();
  sums_.resize(choice_.layers.size());
  times_ = PassTimes(choice_.layers.size());
  if (training_.records_trace()) training_.add_spans(this, [this] { return spans(); });
}

Preconditioner::~Preconditioner() {
  observer_.reset();
  if (std::uncaught_exceptions() > unwinding_) group_->abort("the training program ended with an error");
  if (training_.records_trace()) training_.remove_spans(this);
}

void Preconditioner::listen(const std::shared_ptr<Preconditioner>& self) {
  self_ = self;
  observe();
}

// Where layers are numbered anew, graphs that were recorded before are seen no more.
void Preconditioner::observe() {
  observer_ = std::make_unique<UseObserver>(self_, choice_.layers);
  follow_interval();
}

void Preconditioner::follow_interval() {
  !curvature_ || curvature_->renews_factors() ? observer_->enable() : observer_->disable();
}

void Preconditioner::or_fail(const std::function<void()>& act) {
  if (failure_) std::rethrow_exception(failure_);
  try {
    if (curvature_) curvature_->throw_if_failed();
    act();
  } catch (const std::exception& error) {
    failure_ = std::current_exception();
    group_->abort(error.what());
    training_.fail(failure_);
    throw;
  }
}

// ---- what the passes bring

// Returns the factor's place in the plan, in which A of layers come in forward order, then G in backward
// order.
FactorId Preconditioner::factor_of(std::size_t layer, Side side) const {
  return static_cast<FactorId>(side == Side::input ? layer : 2 * choice_.layers.size() - 1 - layer);
}

void Preconditioner::add(std::size_t layer, Side side, const Rows& rows, double begin_seconds) {
  Sums& of = sums_of(layer, side);
  if (curvature_ && curvature_->reported(factor_of(layer, side))) {
    ++of.sum.uses;
    ++counts_.late_uses;
    return;
  }
  of.sum.add(rows);
  times_.used(layer, side, begin_seconds, now_seconds());
  if (curvature_ && curvature_->plan().travel == Travel::as_ready && of.sum.uses == of.expected)
    curvature_->report(factor_of(layer, side), of.sum, begin_seconds);
}

bool Preconditioner::input_seen(std::size_t layer, const std::optional<Patches>& patches,
                                const torch::Tensor& input) {
  const MatrixLayer& used = choice_.layers[layer];
  if (failure_ || kept_ || !used.trains()) return false;
  const double begin = now_seconds();
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  add(layer, Side::input, rows_of_input(used, patches, input, type_), begin);
  return true;
}

// A pass that makes a graph of gradients, for a derivative of the second order, is no pass of the loss.
void Preconditioner::gradient_seen(std::size_t layer, const torch::Tensor& gradient) {
  if (torch::GradMode::is_enabled() || failure_ || (curvature_ && !curvature_->renews_factors())) return;
  try {
    const double begin = now_seconds();
    const autograd::Unobserved unobserved;
    add(layer, Side::output, rows_of_gradient(choice_.layers[layer], gradient, type_), begin);
  } catch (...) {
    training_.translate(std::current_exception());
    throw;
  }
}

void Preconditioner::keep(std::exception_ptr error) noexcept {
  if (!kept_) kept_ = std::move(error);
}

// ---- the plan

void Preconditioner::learn_order() {
  std::vector<std::size_t> order(choice_.layers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return times_.first_use(a) < times_.first_use(b); });
  if (group_->rank() != 0) order.clear();
  order = agreement::of_rank_0(*group_, agreement::Subject::layer_order, order);
  std::vector<MatrixLayer> layers;
  std::vector<std::array<Sums, 2>> sums;
  for (const std::size_t layer : order) {
    layers.push_back(choice_.layers[layer]);
    sums.push_back(sums_[layer]);
  }
  choice_.layers = std::move(layers);
  sums_ = std::move(sums);
  times_.reorder(order);
  times_.end_step();
  states_.resize(2 * choice_.layers.size());
}

// Rank 0's numbers count.
void Preconditioner::make_plan(const Curvature* measured) {
  const Intervals intervals{.factors = static_cast<std::uint32_t>(options_.factor_every),
                            .inverses = static_cast<std::uint32_t>(options_.inverse_every)};
  std::vector<LayerTimes> times;
  std::vector<MeasuredWork> work;
  if (group_->rank() == 0) {
    times = times_.means();
    if (measured != nullptr) work = measured_by(*measured);
  }
  times = agreement::of_rank_0(*group_, agreement::Subject::profile, times);
  work = agreement::of_rank_0(*group_, agreement::Subject::profile, work);
  const Job job = job_of(choice_.layers, times);
  Plan plan = methods::kfac::make_plan(job, costs_of(group_->size(), work), strategy_of(options_), intervals);
  agree(*group_, "plan of K-FAC", plan.digest(), [&] { return fmt::format("{:016x}", plan.digest()); });
  if (curvature_) {
    curvature_->share_averages();
    earlier_waited_ += curvature_->waited_seconds();
    if (training_.records_trace()) {
      const std::vector<Span> more = spans_of(*curvature_);
      earlier_spans_.insert(earlier_spans_.end(), more.begin(), more.end());
    }
    curvature_.reset();
  }
  planned_at_ = steps_;
  ++plans_;
  curvature_ =
      std::make_unique<Curvature>(*group_, job, std::move(plan), states_,
                                  Curvature::Setting{.intervals = intervals,
                                                     .steps = steps_,
                                                     .record = training_.records_trace() || plans_anew(),
                                                     .type = type_});
}

// Whether times may still change the plan.
bool Preconditioner::plans_anew() const {
  const Strategy strategy = strategy_of(options_);
  const bool goes_by_times = strategy.fusion == FusionRule::by_rule || strategy.fusion == FusionRule::exact ||
                             strategy.placement == PlacementRule::balanced ||
                             strategy.placement == PlacementRule::planned;
  return options_.replan_after > 0 && plans_ < 2 && goes_by_times && group_->size() > 1;
}

// ---- a step

std::vector<double> Preconditioner::learning_rates(const KfacStep& step) const {
  std::vector<double> rates(choice_.layers.size());
  if (step.learning_rate) require_learning_rate(group_->rank(), *step.learning_rate);
  if (!options_.kl_clip) return rates;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const std::optional<double> rate =
        step.learning_rate ? step.learning_rate : training_.learning_rate_of(choice_.layers[i].weight);
    if (!rate)
      throw ConfigError(
          fmt::format("rank {}: K-FAC clips by the learning rate, which the optimiser does not tell: give it "
                      "to step(), or leave kl_clip out",
                      group_->rank()));
    require_learning_rate(group_->rank(), *rate);
    rates[i] = *rate;
  }
  return rates;
}

void Preconditioner::step(const KfacStep& step) {
  if (kept_) or_fail([this] { std::rethrow_exception(kept_); });
  training_.require_usable();
  training_.require_new_gradients();
  if (!(step.loss_scale > 0) || !std::isfinite(step.loss_scale))
    throw ConfigError(fmt::format("rank {}: a loss cannot be scaled by {}: give a finite number above 0",
                                  group_->rank(), step.loss_scale));
  const std::vector<double> rates = learning_rates(step);
  or_fail([&] { take_step(step, rates); });
  training_.stepped();
}

void Preconditioner::take_step(const KfacStep& step, const std::vector<double>& rates) {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  const bool first = !curvature_;
  const double all_rates = step.learning_rate.value_or(std::accumulate(rates.begin(), rates.end(), 0.0));
  // A rank that calls DataParallel::step() instead is found here, before the others wait in the group of
  // K-FAC.
  if (first) {
    training_.reduce_gradients(all_rates, step.loss_scale);
    learn_order();
    take_loaded();
    make_plan(nullptr);
  }
  const bool renews = curvature_->renews_factors();
  const bool whole = std::exchange(given_up_, training_.steps_given_up()) == training_.steps_given_up();
  if (renews) report_rest();
  clear_sums(whole);
  curvature_->commit();
  if (!first) training_.reduce_gradients(all_rates, step.loss_scale);
  const Taking taking{.ema = options_.ema, .gradient_scale = step.loss_scale, .drop = !whole};
  const Damping damping{.value = options_.damping, .pi_correction = options_.pi_correction};
  curvature_->renew(renews ? std::optional(taking) : std::nullopt,
                    curvature_->renews_inverses() ? std::optional(damping) : std::nullopt, counts_);
  precondition(first ? learning_rates(step) : rates);  // layers have their order now
  curvature_->end_step();
  ++steps_;
  if (renews && !first) times_.end_step();
  if (plans_anew() && steps_ - planned_at_ >= options_.replan_after) make_plan(curvature_.get());
  first ? observe() : follow_interval();
}

void Preconditioner::report_rest() {
  for (FactorId factor = 0; factor < curvature_->plan().factors.size(); ++factor) {
    const Factor& which = curvature_->plan().factors[factor];
    const Sums& of = sums_of(which.layer, which.side);
    if (!curvature_->reported(factor)) curvature_->report(factor, of.sum, now_seconds());
  }
}

// `whole`: they were of this step alone.
void Preconditioner::clear_sums(bool whole) {
  for (auto& of_layer : sums_) {
    for (Sums& of : of_layer) {
      if (whole) of.expected = std::max(of.expected, of.sum.uses);
      of.sum.clear();
    }
  }
}

void Preconditioner::precondition(const std::vector<double>& rates) {
  struct Result {
    const MatrixLayer& layer;
    torch::Tensor gradient;
  };
  std::vector<Result> results;
  double divergence = 0;
  for (std::size_t i = 0; i < choice_.layers.size(); ++i) {
    const MatrixLayer& layer = choice_.layers[i];
    const torch::Tensor& of_weight = layer.weight.grad();
    torch::Tensor matrix;
    // Zeros say that no rank used it; they are to stay as they are: [Note: unused parameters].
    if (of_weight.defined() && of_weight.count_nonzero().item<std::int64_t>() > 0) {
      matrix = of_weight.reshape({layer.outputs, -1}).to(type_);
      if (layer.bias.defined()) {
        const torch::Tensor& of_bias = layer.bias.grad();
        const torch::Tensor column =
            of_bias.defined() ? of_bias.to(type_) : torch::zeros({layer.outputs}, matrix.options());
        matrix = torch::cat({matrix, column.unsqueeze(1)}, 1);
      }
    }
    const torch::Tensor result = curvature_->precondition(static_cast<LayerId>(i), matrix);
    if (!result.defined()) continue;
    if (options_.kl_clip) divergence += rates[i] * rates[i] * (result * matrix).sum().item<double>();
    results.push_back({layer, result});
  }
  const double scale = options_.kl_clip && divergence != 0
                           ? std::min(1.0, std::sqrt(*options_.kl_clip / std::abs(divergence)))
                           : 1.0;
  for (auto& [layer, gradient] : results) {
    gradient.mul_(scale);
    const std::int64_t columns = layer.weight[0].numel();
    torch::Tensor of_weight = layer.weight.grad();
    of_weight.copy_(gradient.narrow(1, 0, columns).reshape(of_weight.sizes()));
    torch::Tensor of_bias = layer.bias.defined() ? layer.bias.grad() : torch::Tensor();
    if (of_bias.defined()) of_bias.copy_(gradient.select(1, columns));
  }
}

}  // namespace dear::systems::kfac

namespace dear {

Kfac::Kfac(torch::nn::Module& model, DataParallel& dp, KfacOptions options)
    : Kfac(kfac_layers_of(model), dp, std::move(options)) {}
Kfac::Kfac(std::vector<KfacLayer> layers, DataParallel& dp, KfacOptions options)
    : impl_(std::make_shared<systems::kfac::Preconditioner>(layers, dp, std::move(options))) {
  impl_->listen(impl_);
}
Kfac::~Kfac() = default;
void Kfac::step(const KfacStep& step) { impl_->step(step); }
std::map<std::string, torch::Tensor> Kfac::state() { return impl_->state(); }
void Kfac::load_state(const std::map<std::string, torch::Tensor>& state) { impl_->load_state(state); }
KfacReport Kfac::report() const { return impl_->report(); }

}  // namespace dear
