#include "dear/systems/moe/mixture_pass.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/systems/moe/order.h"

namespace dear::systems::moe {
namespace {

using torch::Tensor;

When when_of(const MixtureImpl& mixture) {
  return mixture.options().overlap == ExpertOverlap::lancet ? When::late : When::at_once;
}

// The experts with the largest probabilities, [tokens, choices]; of equal ones the first.
Tensor choices_of(const Tensor& probabilities, int choices) {
  Tensor first = probabilities.argmax(1, true);
  if (choices == 1) return first;
  return torch::cat({first, probabilities.scatter(1, first, -1.0).argmax(1, true)}, 1);
}

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  const Tensor flat = tensor.to(c10::CppTypeToScalarType<T>::value).contiguous();
  const T* data = flat.const_data_ptr<T>();
  return {data, data + flat.numel()};
}

}  // namespace

MixturePass::MixturePass(MixtureImpl& mixture, std::vector<methods::moe::TokenRange> parts,
                         std::int64_t capacity)
    : mixture_(mixture),
      ranges_(std::move(parts)),
      capacity_(capacity),
      used_(static_cast<std::size_t>(mixture.options().experts)),
      arrived_(static_cast<std::size_t>(mixture.options().experts)),
      parts_(ranges_.size()),
      gate_(mixture.gate_, Tensor(), when_of(mixture)),
      inputs_(mixture.inputs_, 1.0 / mixture.ranks()->size(), when_of(mixture)),
      outputs_(mixture.outputs_, 1.0 / mixture.ranks()->size(), when_of(mixture)) {}

void MixturePass::send(int part, const Tensor& x) {
  mixture_.ranks_->or_abort([&] {
    const bool last = part + 1 == std::ssize(parts_);
    choose(part, x);
    if (mixture_.options_.gate == "batch-prioritized") {
      if (last) place_whole();
    } else {
      OfPart& one = parts_[static_cast<std::size_t>(part)];
      Placed placed{.experts = values_of<std::int32_t>(one.chosen), .slots = {}, .counts = {}};
      placed.slots.resize(placed.experts.size());
      placed.counts = methods::moe::place_in_order(placed.experts, capacity_, used_, placed.slots);
      launch(part, std::move(placed));
    }
    if (last) end_of_sending();
  });
}

void MixturePass::choose(int part, const Tensor& x) {
  OfPart& one = parts_[static_cast<std::size_t>(part)];
  const methods::moe::TokenRange range = ranges_[static_cast<std::size_t>(part)];
  const auto& options = mixture_.options_;
  if (x.dim() < 2 || x.size(-1) != options.width || x.numel() / options.width != range.end - range.begin)
    throw ConfigError(fmt::format("a mixture of width {} takes (batch, ..., {}), and this is [{}]",
                                  options.width, options.width, fmt::join(x.sizes(), ", ")));
  const auto type = mixture_.gate_.scalar_type();
  if (x.scalar_type() != type || !x.device().is_cpu() || (type != torch::kFloat32 && type != torch::kFloat64))
    throw ConfigError(
        fmt::format("a mixture of experts with parameters of {} was given {} on {}: it takes its own type, "
                    "float or double, on the CPU",
                    c10::toString(type), c10::toString(x.scalar_type()), x.device().str()));
  one.shape = x.sizes().vec();
  const auto [flat, of_gate] = fork(x.reshape({-1, options.width}));
  const Tensor logits = gate_(part, of_gate);
  if (!logits.detach().isfinite().all().item<bool>())
    throw ConfigError(
        fmt::format("rank {}: the gate of a mixture of experts gave what is not a finite number, so no "
                    "expert can be chosen: look for the first input or parameter that is not finite",
                    mixture_.ranks_->rank()));
  one.x = flat;
  one.probabilities = logits.softmax(1);
  one.chosen = choices_of(one.probabilities.detach(), mixture_.choices());
  one.scores = one.probabilities.gather(1, one.chosen);
}

void MixturePass::place_whole() {
  std::vector<Tensor> chosen, scores;
  for (const OfPart& one : parts_) {
    chosen.push_back(one.chosen);
    scores.push_back(one.scores.detach());
  }
  const auto experts = values_of<std::int32_t>(torch::cat(chosen));
  std::vector<std::int64_t> slots(experts.size());
  const int choices = mixture_.choices();
  const std::int64_t count = mixture_.options_.experts;
  methods::moe::place_by_importance(experts, choices, values_of<float>(torch::cat(scores)), capacity_, count,
                                    slots);
  for (int part = 0; part < std::ssize(parts_); ++part) {
    const methods::moe::TokenRange range = ranges_[static_cast<std::size_t>(part)];
    Placed placed{.experts = {experts.begin() + range.begin * choices, experts.begin() + range.end * choices},
                  .slots = {slots.begin() + range.begin * choices, slots.begin() + range.end * choices},
                  .counts = {}};
    placed.counts = methods::moe::take_part(placed.experts, count, placed.slots);
    launch(part, std::move(placed));
  }
}

void MixturePass::launch(int part, Placed placed) {
  OfPart& one = parts_[static_cast<std::size_t>(part)];
  const methods::moe::TokenRange range = ranges_[static_cast<std::size_t>(part)];
  const auto& options = mixture_.options_;
  one.exchange =
      c10::make_intrusive<Exchange>(Exchange::Options{.group = mixture_.ranks_,
                                                      .name = fmt::format("part {}", part),
                                                      .room = std::min(capacity_, range.end - range.begin),
                                                      .choices = mixture_.choices(),
                                                      .at_once = options.overlap == ExpertOverlap::none},
                                    std::move(placed));
  one.token = send_tokens(one.x, one.exchange);
  if (options.overlap == ExpertOverlap::lancet) wait_late(one.token);
  one.x = Tensor();
}

// Formed once over the whole batch: it is no sum over parts.
void MixturePass::end_of_sending() {
  if (!torch::GradMode::is_enabled()) return;
  std::vector<Tensor> chosen, probabilities;
  MixtureStatistics& statistics = mixture_.statistics_;
  for (OfPart& one : parts_) {
    chosen.push_back(one.chosen.flatten());
    probabilities.push_back(one.probabilities);
    const std::vector<std::int64_t>& slots = one.exchange->placed().slots;
    statistics.dropped += std::count(slots.begin(), slots.end(), methods::moe::kDropped);
    statistics.tokens += one.chosen.size(0);
    one.probabilities = one.chosen = Tensor();
  }
  const Tensor counts = torch::cat(chosen).bincount({}, mixture_.options_.experts);
  const auto by_expert = values_of<std::int64_t>(counts);
  std::transform(by_expert.begin(), by_expert.end(), statistics.by_expert.begin(),
                 statistics.by_expert.begin(), std::plus<>());
  ++statistics.passes;
  const Tensor whole = probabilities.size() == 1 ? probabilities.front() : torch::cat(probabilities);
  const Tensor share = counts.to(whole.scalar_type()) / counts.sum();
  mixture_.balance_loss_ = static_cast<double>(mixture_.options_.experts) * (share * whole.mean(0)).sum();
}

void MixturePass::compute(int part) {
  mixture_.ranks_->or_abort([&] {
    OfPart& one = parts_[static_cast<std::size_t>(part)];
    const Tensor rows = take_tokens(one.token, one.exchange);
    const std::shared_ptr<const Arriving>& arriving = one.exchange->arriving();
    std::transform(arrived_.begin(), arrived_.end(), arriving->counts().begin(), arrived_.begin(),
                   std::plus<>());
    methods::moe::check_counts(arrived_, capacity_, mixture_.ranks_->size(), mixture_.ranks_->rank());
    const Tensor hidden = torch::gelu(inputs_(part, arriving, rows));
    one.token = send_back(outputs_(part, arriving, hidden), one.exchange);
    if (mixture_.options_.overlap == ExpertOverlap::lancet) wait_late(one.token);
  });
}

Tensor MixturePass::receive(int part) {
  return mixture_.ranks_->or_abort([&] {
    OfPart& one = parts_[static_cast<std::size_t>(part)];
    const Tensor weights = mixture_.choices() == 1 ? one.scores : one.scores / one.scores.sum(1, true);
    return take_back(std::exchange(one.token, Tensor()), weights, one.exchange).view(one.shape);
  });
}

}  // namespace dear::systems::moe
