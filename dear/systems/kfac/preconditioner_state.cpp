// A Kfac tells its state, for checkpoints, what it did, and spans.

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/systems/kfac/preconditioner.h"

namespace dear::systems::kfac {

namespace {

constexpr const char* kSteps = "steps";

std::string name_of_state(const std::string& layer, Side side, const char* what) {
  return fmt::format("{}.{}.{}", layer, methods::kfac::name_of(side), what);
}

}  // namespace

std::map<std::string, torch::Tensor> Preconditioner::state() {
  training_.settle_for("saving the state of a Kfac");
  std::map<std::string, torch::Tensor> state;
  if (!curvature_) {
    state = loaded_;
    state.try_emplace(kSteps, torch::tensor(steps_, torch::kLong));
    return state;
  }
  or_fail([&] {
    curvature_->share_averages();
    state[kSteps] = torch::tensor(steps_, torch::kLong);
    for (std::size_t layer = 0; layer < choice_.layers.size(); ++layer) {
      for (const Side side : {Side::input, Side::output}) {
        const FactorState& of = states_[factor_of(layer, side)];
        const std::string& name = choice_.layers[layer].name;
        if (of.average.defined()) state[name_of_state(name, side, "average")] = of.average.clone();
        if (of.inverse.defined()) state[name_of_state(name, side, "inverse")] = of.inverse.clone();
      }
    }
  });
  return state;
}

// The tensors of a state that is one of this model's, in the type of its factors.
std::map<std::string, torch::Tensor> Preconditioner::checked(
    const std::map<std::string, torch::Tensor>& state) const {
  std::map<std::string, torch::Tensor> taken;
  std::map<std::string, std::int64_t> known;  // dimensions by name
  for (const MatrixLayer& layer : choice_.layers)
    for (const char* what : {"average", "inverse"}) {
      known[name_of_state(layer.name, Side::input, what)] = layer.inputs;
      known[name_of_state(layer.name, Side::output, what)] = layer.outputs;
    }
  for (const auto& [name, tensor] : state) {
    for (const auto& [layer, reason] : choice_.left_out)
      if (name.starts_with(layer + ".") && reason == kExcluded)
        throw ConfigError(
            fmt::format("rank {}: '{}' of the state of K-FAC is of layer '{}', which `exclude` leaves out: "
                        "exclude the layers that were excluded when it was saved",
                        group_->rank(), name, layer));
    const auto found = known.find(name);
    const bool fits = name == kSteps ? tensor.defined() && tensor.numel() == 1
                                     : found != known.end() && tensor.defined() &&
                                           tensor.sizes() == at::IntArrayRef({found->second, found->second});
    if (!fits)
      throw ConfigError(
          fmt::format("rank {}: '{}' of the state of K-FAC is none of this model, or of another shape: load "
                      "the state of the same layers",
                      group_->rank(), name));
    taken[name] = name == kSteps ? tensor : tensor.to(type_, false, true).contiguous();
  }
  if (!taken.contains(kSteps))
    throw ConfigError(fmt::format("rank {}: the state of K-FAC lacks '{}': load all that state() returned",
                                  group_->rank(), kSteps));
  return taken;
}

// Before the first step it waits for the order of the layers.
void Preconditioner::load_state(const std::map<std::string, torch::Tensor>& state) {
  training_.settle_for("loading the state of a Kfac");
  std::map<std::string, torch::Tensor> taken;
  agreement::check_together(*group_, [&] { taken = checked(state); });
  const std::int64_t steps = taken.at(kSteps).item<std::int64_t>();
  agree(*group_, "steps of K-FAC", steps, [&] { return std::to_string(steps); });
  loaded_ = std::move(taken);
  if (!curvature_) return;
  or_fail([&] {
    take_loaded();
    plans_ = 0;
    make_plan(nullptr);
    follow_interval();
  });
}

void Preconditioner::take_loaded() {
  if (loaded_.empty()) return;
  steps_ = loaded_.at(kSteps).item<std::int64_t>();
  for (std::size_t layer = 0; layer < choice_.layers.size(); ++layer) {
    for (const Side side : {Side::input, Side::output}) {
      const auto value = [&](const char* what) {
        const auto found = loaded_.find(name_of_state(choice_.layers[layer].name, side, what));
        return found == loaded_.end() ? torch::Tensor() : found->second;
      };
      states_[factor_of(layer, side)] = {.average = value("average"), .inverse = value("inverse")};
    }
  }
  loaded_.clear();
}

std::string Preconditioner::plan_text() const {
  if (!curvature_) return "";
  const Plan& plan = curvature_->plan();
  std::vector<std::size_t> sizes;
  for (const Plan::Group& group : plan.groups) sizes.push_back(group.factors.size());
  std::map<int, int> owners;
  for (const std::optional<int>& owner : plan.placement) ++owners[owner.value_or(-1)];
  std::string text = fmt::format("{}: {} factors in groups of {}", plan.strategy, plan.factors.size(),
                                 fmt::join(sizes, ", "));
  for (const auto& [owner, count] : owners)
    text += owner < 0 ? fmt::format("; {} inverted by every rank", count)
                      : fmt::format("; {} by rank {}", count, owner);
  return text;
}

KfacReport Preconditioner::report() const {
  KfacReport report{.steps = steps_,
                    .left_out = choice_.left_out,
                    .late_uses = counts_.late_uses,
                    .nonfinite_factors = counts_.nonfinite,
                    .raised_dampings = counts_.raised,
                    .given_up_inverses = counts_.given_up,
                    .plan = plan_text(),
                    .waited_seconds = earlier_waited_ + (curvature_ ? curvature_->waited_seconds() : 0.0)};
  for (const MatrixLayer& layer : choice_.layers) report.layers.push_back(layer.name);
  return report;
}

std::vector<Span> Preconditioner::spans_of(const Curvature& curvature) const {
  std::vector<Span> spans;
  const auto add = [&](const std::string& name, Activity activity, const conductor::StepSpan& span) {
    spans.push_back({.rank = group_->rank(),
                     .lane = activity == Activity::communication ? "network of factors" : "compute",
                     .name = name,
                     .activity = activity,
                     .iteration = planned_at_ + span.which.iteration,
                     .step = -1,
                     .begin_seconds = span.begin_seconds,
                     .end_seconds = span.end_seconds});
  };
  for (const conductor::StepSpan& span : curvature.spans()) {
    const Work& work = curvature.work_of(span.which.step);
    if (span.end_seconds > span.begin_seconds)  // else nothing was done here
      add(methods::kfac::name_of(work), work.communicates() ? Activity::communication : Activity::other,
          span);
  }
  for (const auto& [factor, inverse, span] : curvature.readings())
    add(fmt::format("{} {}", inverse ? "unpacking of inverse" : "average of factor", factor), Activity::other,
        span);
  for (const conductor::StepSpan& wait : curvature.waits())
    add("wait for " + methods::kfac::name_of(curvature.work_of(wait.which.step)), Activity::wait, wait);
  return spans;
}

std::vector<Span> Preconditioner::spans() const {
  std::vector<Span> all = earlier_spans_;
  if (!curvature_) return all;
  const std::vector<Span> more = spans_of(*curvature_);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace dear::systems::kfac
