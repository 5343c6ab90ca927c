#include "dear/train/optim/reduced_gradients.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <ATen/OpMathType.h>
#include <torch/types.h>

#include "dear/base/vocabulary/error.h"

namespace dear::optim {
namespace {

// Calls `act` with a pointer of the span's type.
template <typename Span, typename Act>
auto typed(const Span& span, Act act) {
  switch (span.dtype) {
    case DType::f64:
      return act(static_cast<double*>(span.data));
    case DType::f16:
      return act(static_cast<at::Half*>(span.data));
    case DType::bf16:
      return act(static_cast<at::BFloat16*>(span.data));
    default:
      return act(static_cast<float*>(span.data));
  }
}

// Independent partial results, which a compiler computes side by side.
constexpr std::int64_t kPartials = 8;

template <typename T, typename Join>
double joined(const T* values, std::int64_t count, Join join) {
  std::array<double, kPartials> partials{};
  std::int64_t i = 0;
  for (; i + kPartials <= count; i += kPartials)
    for (std::int64_t k = 0; k < kPartials; ++k)
      partials[k] = join(partials[k], std::abs(static_cast<double>(values[i + k])));
  for (; i < count; ++i) partials[0] = join(partials[0], std::abs(static_cast<double>(values[i])));
  double all = partials[0];
  for (std::int64_t k = 1; k < kPartials; ++k) all = join.of_two(all, partials[k]);
  return all;
}

template <typename Term>
struct Sum {
  Term term;
  double operator()(double sum, double value) const { return sum + term(value); }
  [[nodiscard]] double of_two(double a, double b) const { return a + b; }
};
template <typename Term>
Sum(Term) -> Sum<Term>;

struct Largest {
  double operator()(double a, double b) const { return std::isnan(a) || a >= b ? a : b; }
  [[nodiscard]] double of_two(double a, double b) const { return (*this)(a, b); }
};

// Gives each element the value of `change`, but no zero a sign that says that it is unused.
template <typename Span, typename Change>
void change_all(const Span& span, Change change) {
  typed(span, [&](auto* values) {
    using T = std::remove_pointer_t<decltype(values)>;
    using Math = at::opmath_type<T>;
    for (std::int64_t i = 0; i < span.count; ++i)
      values[i] = static_cast<T>(change(static_cast<Math>(values[i])) + Math{0});
  });
}

template <typename Span>
bool is_unused(const Span& span) {
  return typed(span, [&](auto* values) {
    return std::all_of(values, values + span.count, [](auto value) {
      const auto wide = static_cast<double>(value);
      return wide == 0 && std::signbit(wide);
    });
  });
}

}  // namespace

void ReducedGradients::add(std::vector<Span>& spans, void* data, std::int64_t count, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::f16 && dtype != DType::bf16)
    throw ConfigError("gradients of this type have no norm: train tensors of fp32, fp64, fp16 or bf16");
  if (count > 0) spans.push_back({data, count, dtype});
}

double ReducedGradients::power_sum(double p) const {
  const auto over_all = [&](const auto& join) {
    double all = 0;
    for (const Span& span : counted_)
      all = join.of_two(all, typed(span, [&](auto* values) { return joined(values, span.count, join); }));
    return all;
  };
  if (std::isinf(p)) return over_all(Largest{});
  if (p == 1) return over_all(Sum{[](double value) { return value; }});
  if (p == 2) return over_all(Sum{[](double value) { return value * value; }});
  return over_all(Sum{[p](double value) { return std::pow(value, p); }});
}

bool ReducedGradients::all_finite() const {
  // A difference with itself is 0 where a value is finite, else NaN.
  const Sum join{[](double value) { return value - value; }};
  return std::all_of(counted_.begin(), counted_.end(), [&](const Span& span) {
    return typed(span, [&](auto* values) { return joined(values, span.count, join) == 0; });
  });
}

void ReducedGradients::scale(double factor) {
  if (factor == 1) return;
  for (const Span& span : held_) {
    if (!is_unused(span))
      change_all(span, [factor](auto value) { return value * static_cast<decltype(value)>(factor); });
  }
}

void ReducedGradients::clamp(double limit) {
  for (const Span& span : held_) {
    if (is_unused(span)) continue;
    change_all(span, [limit](auto value) {
      const auto most = static_cast<decltype(value)>(limit);
      return value < -most ? -most : value > most ? most : value;
    });
  }
}

}  // namespace dear::optim
