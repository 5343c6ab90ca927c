#include "dear/systems/rounds/replica.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/comm/group/single.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/part_of_training.h"
#include "dear/train/model/tensor_broadcast.h"

namespace dear {

using systems::rounds::deal;
using systems::rounds::Exchange;
using systems::rounds::Travelling;
using systems::rounds::turn_at;

namespace {

void check(const RoundOptions& options, int ranks) {
  const auto refuse = [](const std::string& what) { throw ConfigError("rounds: " + what); };
  if (options.every < 1) refuse(fmt::format("every={}: a round has at least 1 step", options.every));
  if (options.fragments < 1)
    refuse(fmt::format("fragments={}: the model travels in at least 1", options.fragments));
  if (options.every % options.fragments != 0)
    refuse(
        fmt::format("{} fragments cannot have their turns evenly in {} steps: give an `every` that is a "
                    "multiple of `fragments`",
                    options.fragments, options.every));
  const std::int64_t stride = options.every / options.fragments;
  if (options.delay < 0 || options.delay >= stride)
    refuse(fmt::format("delay={}: give 0 to {}, for the next fragment has its turn {} steps after one",
                       options.delay, stride - 1, stride));
  if (!(options.mixing >= 0 && options.mixing <= 1))
    refuse(
        fmt::format("mixing={}: give the weight of a replica's own parameters, from 0 to 1", options.mixing));
  if (options.inside < 1 || ranks % options.inside != 0)
    refuse(
        fmt::format("inside={}: {} ranks cannot be sites of so many: give a divisor", options.inside, ranks));
  if (!options.compression) return;
  validate(*options.compression);
  if (options.compression->momentum != 0 || options.compression->weight_decay != 0)
    refuse(
        "the compression of outer gradients has no momentum and no decay of its own: give the outer "
        "optimiser those");
  if (options.compression->scheme == Scheme::sketch)
    refuse(
        "a sketch is of gradients that are mostly zero, and outer gradients are not: choose another "
        "compression");
}

}  // namespace

Rounds::Replica::Replica(const Model& model, const Group& group, RoundOptions options, const MakeOuter& outer)
    : options_(std::move(options)), all_(group) {
  agreement::check_together(group, [&] {
    check(options_, group.size());
    scan(model);
    std::vector<std::int64_t> elements;
    for (const Trained& one : trained_) elements.push_back(one.own.numel());
    fragments_ = deal(elements, options_.fragments, options_.inside);
  });
  agree_on(group);
  if (options_.inside == 1) {
    inside_ = Group(comm::make_single(), {.timeout = group.timeout()});
    between_ = agreement::own_group(group);
  } else {
    const int site = group.rank() / options_.inside, number = group.rank() % options_.inside;
    inside_ = group.split(site, number);
    gathers_ = group.split(site, number);
    between_ = group.split(number, site);
  }
  begin_alike(group, model);
  make_outers(outer);
  std::vector<Travelling> travelling;
  for (const Trained& one : trained_)
    travelling.push_back({one.name, one.own.sizes().vec(), one.own.numel()});
  exchange_ = std::make_unique<Exchange>(
      std::move(travelling), fragments_,
      Exchange::Options{
          .type = type_, .compression = options_.compression, .between = *between_, .inside = gathers_});
  steps_at_turn_.assign(fragments_.size(), 0);
}

Rounds::Replica::~Replica() {
  if (std::uncaught_exceptions() <= unwinding_) return;
  for (const std::optional<Group>& group : {between_, gathers_})
    if (group) group->abort("the training program ended with an error");
}

// A tensor that several modules share is trained once.
void Rounds::Replica::scan(const Model& model) {
  std::set<const c10::TensorImpl*> seen;
  for (const auto& [name, tensor] : model.parameters) {
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    if (!tensor.requires_grad()) {
      frozen_.push_back({name, tensor, {}});
      continue;
    }
    if (!at::isFloatingType(tensor.scalar_type()))
      throw ConfigError(
          fmt::format("rounds: parameter '{}' is {}: parameters that are averaged are real "
                      "numbers in floating point",
                      name, c10::toString(tensor.scalar_type())));
    if (tensor.scalar_type() == at::kDouble) type_ = at::kDouble;
    trained_.push_back({name, tensor, {}});
  }
  if (trained_.empty()) throw ConfigError("rounds: the model has no parameter that requires a gradient");
  if (options_.compression && type_ == at::kDouble)
    throw ConfigError(
        "rounds: compression is of fp32, and a parameter of the model is fp64: train in fp32, or "
        "without compression");
}

void Rounds::Replica::agree_on(const Group& group) const {
  std::string text = fmt::format("every {}, fragments {}, delay {}, mixing {}, inside {}, compression '{}'",
                                 options_.every, options_.fragments, options_.delay, options_.mixing,
                                 options_.inside, options_.compression ? options_.compression->text() : "");
  for (const Trained& one : trained_)
    text += fmt::format("; {} [{}] {}", one.name, fmt::join(one.own.sizes(), ", "),
                        c10::toString(one.own.scalar_type()));
  agree(group, "rounds", text);
}

void Rounds::Replica::begin_alike(const Group& group, const Model& model) {
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : model.parameters) tensors.push_back(tensor);
  for (const auto& [name, tensor] : model.buffers) tensors.push_back(tensor);
  model::TensorBroadcast(group, std::move(tensors)).run();
  const torch::NoGradGuard no_grad;
  for (Trained& one : trained_)
    one.global = one.own.detach().to(type_, /*non_blocking=*/false, /*copy=*/true);
}

void Rounds::Replica::make_outers(const MakeOuter& outer) {
  for (const systems::rounds::Fragment& fragment : fragments_) {
    if (!outer) continue;
    std::vector<torch::Tensor> parameters;
    for (const std::size_t tensor : fragment.tensors())
      parameters.push_back(trained_[tensor].global.requires_grad_(true));
    outers_.push_back(outer(parameters));
  }
}

void Rounds::Replica::follow(DataParallel& dp) {
  train::PartOfTraining(dp).require_writable_parameters("training by rounds");
  training_ = &dp;
  if (train::PartOfTraining(dp).records_trace()) exchange_->record();
}

// ---- the rounds

void Rounds::Replica::await_parameters() {
  if (training_ != nullptr) training_->wait();
}

void Rounds::Replica::require_own(const char* call) const {
  if (!shown_.empty())
    throw ConfigError(fmt::format("rank {}: {} while the global parameters are shown: show_own() comes first",
                                  all_.rank(), call));
}

void Rounds::Replica::stepped() {
  require_own("a step was made");
  ++steps_;
  advance();
}

Rounds::Replica::Applied Rounds::Replica::advance() {
  ++position_;
  Applied applied = Applied::nothing;
  if (under_way_ && position_ >= under_way_->due) applied = apply();
  const std::int64_t fragment = turn_at(position_, options_.every, options_.fragments);
  if (fragment < 0) return applied;
  start(static_cast<std::size_t>(fragment));
  return options_.delay == 0 ? apply() : applied;
}

void Rounds::Replica::require_frozen() const {
  for (const Trained& one : frozen_)
    if (one.own.requires_grad())
      throw ConfigError(
          fmt::format("rank {}: parameter '{}' was frozen when the rounds began, and its replicas would not "
                      "meet: begin the training anew with it",
                      all_.rank(), one.name));
}

void Rounds::Replica::start(std::size_t fragment) {
  require_frozen();
  await_parameters();
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  const bool stepped = steps_ > std::exchange(steps_at_turn_[fragment], steps_);
  exchange_->begin(fragment, stepped ? 1 : 0);
  if (stepped)
    for (const std::size_t tensor : exchange_->mine(fragment))
      exchange_->outgoing(tensor).copy_(trained_[tensor].global - trained_[tensor].own.to(type_));
  under_way_ = UnderWay{fragment, position_ + options_.delay};
  exchange_->start(steps_);
}

Rounds::Replica::Applied Rounds::Replica::apply() {
  const UnderWay done = *std::exchange(under_way_, std::nullopt);
  exchange_->wait();
  await_parameters();
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  const double weight = exchange_->weight();
  if (weight == 0) return Applied::no_replica;
  require_finite(done.fragment);
  const std::vector<std::size_t> tensors = fragments_[done.fragment].tensors();
  for (const std::size_t tensor : tensors) {
    torch::Tensor mean = exchange_->mean(tensor);
    if (weight != 1) mean.div_(weight);
    mean = mean.to(trained_[tensor].global.device());
    if (outers_.empty()) {
      trained_[tensor].global.sub_(mean);
    } else {
      trained_[tensor].global.mutable_grad() = mean;
    }
  }
  if (!outers_.empty()) outers_[done.fragment]->step();
  for (const std::size_t tensor : tensors) {
    trained_[tensor].global.mutable_grad().reset();
    take_global(trained_[tensor].own, trained_[tensor].global);
  }
  ++exchanges_;
  return Applied::mean;
}

void Rounds::Replica::take_global(torch::Tensor& own, const torch::Tensor& global) const {
  own.copy_(options_.mixing == 0 ? global : own.to(type_) * options_.mixing + global * (1 - options_.mixing));
}

// The mean is the same on all ranks, so all come here, and then tell each other whose parameter it is.
void Rounds::Replica::require_finite(std::size_t fragment) const {
  const std::vector<std::size_t> tensors = fragments_[fragment].tensors();
  const auto bad = [](const torch::Tensor& tensor) { return !at::isfinite(tensor).all().item<bool>(); };
  if (std::none_of(tensors.begin(), tensors.end(),
                   [&](std::size_t tensor) { return bad(exchange_->mean(tensor)); }))
    return;
  const auto mine = std::find_if(tensors.begin(), tensors.end(),
                                 [&](std::size_t tensor) { return bad(trained_[tensor].own); });
  const std::int64_t number = mine == tensors.end() ? -1 : static_cast<std::int64_t>(*mine);
  const std::vector<std::int64_t> numbers = comm::all_gather_values(all_, number);
  for (std::size_t rank = 0; rank < numbers.size(); ++rank)
    if (numbers[rank] >= 0)
      throw Error(fmt::format(
          "rank {}: parameter '{}' is NaN or infinite at the end of its round of {} steps, so the round does "
          "not count: lower the learning rate of the inner optimiser, or load a checkpoint",
          rank, trained_[static_cast<std::size_t>(numbers[rank])].name, options_.every));
  throw Error(
      fmt::format("the mean of the outer gradients of fragment {} is NaN or infinite, though no "
                  "parameter is, so the round does not count: let them travel in a wider type",
                  fragment));
}

// Fragments whose round no replica made a step of are left out, and all fragments before were exchanged then.
void Rounds::Replica::end() {
  require_own("end() was called");
  if (options_.compression && options_.compression->feedback)
    agree(all_, "number of steps before end(), with feedback of a compression", std::to_string(steps_));
  while (advance() != Applied::no_replica) {
  }
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  for (Trained& one : trained_) one.own.copy_(one.global);
}

void Rounds::Replica::show_global() {
  require_own("show_global() was called");
  await_parameters();
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  for (Trained& one : trained_) {
    shown_.push_back(one.own.detach().clone());
    one.own.copy_(one.global);
  }
}

void Rounds::Replica::show_own() {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < shown_.size(); ++i) trained_[i].own.copy_(shown_[i]);
  shown_.clear();
}

RoundsReport Rounds::Replica::report() const {
  RoundsReport report{.steps = steps_,
                      .exchanges = exchanges_,
                      .bytes = exchange_->sent_bytes(),
                      .communication_seconds = exchange_->communication_seconds(),
                      .exposed_seconds = exchange_->waited_seconds(),
                      .memory_bytes = exchange_->memory_bytes()};
  for (const Trained& one : trained_) report.memory_bytes += static_cast<std::int64_t>(one.global.nbytes());
  for (const systems::rounds::Fragment& fragment : fragments_) {
    std::vector<std::string>& names = report.fragments.emplace_back();
    for (const std::size_t tensor : fragment.tensors()) names.push_back(trained_[tensor].name);
  }
  return report;
}

}  // namespace dear
