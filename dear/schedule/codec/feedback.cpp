#include "dear/schedule/codec/feedback.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::codec {
namespace {

enum class Kind : std::uint8_t { none, plain, nesterov };

// Holds what combine() reads and writes; what its form does not use is not there.
struct Vectors {
  float* gradients;
  const float* parameters;
  const float* momentum;
  float* next_momentum;
  const float* residual;
  std::int64_t elements;
  float weight_decay;
  float factor;  // of momentum
};

// A form of its own for each combination, so that the loop has no branch and the compiler vectorises it.
template <bool decay, Kind kind, bool feedback>
void combine(const Vectors& all) {
  float* const __restrict gradients = all.gradients;
  const float* const __restrict parameters = all.parameters;
  const float* const __restrict momentum = all.momentum;
  float* const __restrict next_momentum = all.next_momentum;
  const float* const __restrict residual = all.residual;
  const std::int64_t elements = all.elements;
  const float weight_decay = all.weight_decay;
  const float factor = all.factor;
  for (std::int64_t i = 0; i < elements; ++i) {
    float value = gradients[i];
    if constexpr (decay) value += weight_decay * parameters[i];
    if constexpr (kind != Kind::none) {
      const float next = factor * momentum[i] + value;
      next_momentum[i] = next;
      value = kind == Kind::nesterov ? value + factor * next : next;
    }
    if constexpr (feedback) value += residual[i];
    gradients[i] = value;
  }
}

using Combine = void (*)(const Vectors&);
template <bool decay, Kind kind>
constexpr std::array<Combine, 2> kByFeedback{combine<decay, kind, false>, combine<decay, kind, true>};
template <bool decay>
constexpr std::array<std::array<Combine, 2>, 3> kByKind{
    kByFeedback<decay, Kind::none>, kByFeedback<decay, Kind::plain>, kByFeedback<decay, Kind::nesterov>};
constexpr std::array<std::array<std::array<Combine, 2>, 3>, 2> kCombine{kByKind<false>, kByKind<true>};

Kind kind_of(const Compression& compression) {
  if (compression.momentum == 0) return Kind::none;
  return compression.nesterov ? Kind::nesterov : Kind::plain;
}

void check_size(std::string_view what, std::size_t size, std::int64_t elements) {
  if (std::cmp_equal(size, elements)) return;
  throw ConfigError(
      fmt::format("feedback of {} elements was given {} of {}: give as many", elements, size, what));
}

}  // namespace

Feedback::Feedback(const Compression& compression, std::int64_t elements)
    : compression_(compression), elements_(elements) {
  validate(compression);
  if (elements < 0) throw ConfigError(fmt::format("feedback of {} elements: give 0 or more", elements));
  const auto size = static_cast<std::size_t>(elements);
  if (compression.feedback) residual_.resize(size);
  if (kind_of(compression) == Kind::none) return;
  momentum_.resize(size);
  next_momentum_.resize(size);
}

void Feedback::prepare(std::span<float> gradients, std::span<const float> parameters) {
  check_size("gradients", gradients.size(), elements_);
  const bool decay = compression_.weight_decay != 0;
  if (decay || !parameters.empty()) check_size("parameters", parameters.size(), elements_);
  prepared_ = true;
  const Kind kind = kind_of(compression_);
  if (!decay && kind == Kind::none && !compression_.feedback) return;
  kCombine[decay ? 1 : 0][static_cast<std::size_t>(kind)][compression_.feedback ? 1 : 0](
      {.gradients = gradients.data(),
       .parameters = parameters.data(),
       .momentum = momentum_.data(),
       .next_momentum = next_momentum_.data(),
       .residual = residual_.data(),
       .elements = elements_,
       .weight_decay = static_cast<float>(compression_.weight_decay),
       .factor = static_cast<float>(compression_.momentum)});
}

void Feedback::keep(std::span<const float> remainder, const TakeOut& take_out) {
  if (!prepared_) throw ConfigError("feedback cannot keep a step without prepare(): call it first");
  if (compression_.feedback || !remainder.empty()) check_size("the remainder", remainder.size(), elements_);
  if (compression_.correction) {
    if (!take_out) throw ConfigError("correction has to know what travelled: give keep() a take_out");
    take_out(next_momentum_);
  }
  if (compression_.feedback) std::ranges::copy(remainder, residual_.begin());
  std::swap(momentum_, next_momentum_);
  prepared_ = false;
}

std::span<float> Feedback::part(std::vector<float>& state, Range range) const {
  if (range.begin < 0 || range.end < range.begin || range.end > elements_) {
    throw ConfigError(fmt::format("feedback has elements 0 to {}, not {} to {}: ask for those of its bucket",
                                  elements_, range.begin, range.end));
  }
  if (state.empty()) return {};
  return std::span(state).subspan(static_cast<std::size_t>(range.begin),
                                  static_cast<std::size_t>(range.size()));
}

}  // namespace dear::codec
