#include "dear/schedule/codec/top_k.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "dear/schedule/codec/draw.h"

namespace dear::codec {
namespace {

std::uint32_t order_of(const Coordinate& coordinate) {
  return codec::order_of(std::bit_cast<std::uint32_t>(coordinate.value));
}

// Holds what separates the largest from the others: they have a higher order, or are among the first `ties`
// of this.
struct Border {
  std::uint32_t order = 0;
  std::int64_t ties = 0;
};

// Finds the `count`-th largest order, digit by digit from the highest: a histogram of the next digit, over
// those whose digits so far are those of the border, says in which of its values the border lies.
Border border_of(std::span<const Coordinate> candidates, std::int64_t count) {
  constexpr int kBits = 31;
  constexpr int kDigit = 11;
  Border border{.ties = count};
  for (int shift = kBits; shift > 0;) {
    const int digit = std::min(kDigit, shift);
    const int above = shift;
    shift -= digit;
    std::array<std::uint32_t, std::size_t{1} << kDigit> histogram{};
    for (const Coordinate& candidate : candidates) {
      const std::uint32_t order = order_of(candidate);
      if ((order >> above) == border.order) {
        ++histogram[(order >> shift) & ((1U << digit) - 1)];
      }
    }
    std::uint32_t value = (1U << digit) - 1;
    for (; static_cast<std::int64_t>(histogram[value]) < border.ties; --value)
      border.ties -= histogram[value];
    border.order = (border.order << digit) | value;
  }
  return border;
}

// Copies those that the border has on its upper side, in their order; `to` may be where they come from.
void copy_largest(std::span<const Coordinate> candidates, Border border, Coordinate* to) {
  for (const Coordinate& candidate : candidates) {
    const std::uint32_t order = order_of(candidate);
    const bool tie = order == border.order && border.ties > 0;
    border.ties -= static_cast<std::int64_t>(tie);
    if (tie || order > border.order) {
      *to++ = candidate;
    }
  }
}

constexpr std::int64_t kSample = 1 << 14;

}  // namespace

std::uint32_t Selection::guess(std::span<const float> values, std::int64_t count) {
  const auto elements = std::ssize(values);
  const double expected =
      static_cast<double>(kSample) * static_cast<double>(count) / static_cast<double>(elements);
  // Fewer than `count` values would have the order of the sample's element at this place only where the
  // sample were four standard deviations off.
  const auto place = static_cast<std::int64_t>(expected + 4 * std::sqrt(expected) + 4);
  const std::int64_t stride = elements / kSample;
  if (stride < 8 || place > kSample / 2) {
    return 0;
  }
  candidates_.resize(std::max<std::size_t>(candidates_.size(), kSample));
  Draw random(0, 0, 0);
  for (std::int64_t i = 0; i < kSample; ++i) {
    const std::int64_t at = i * stride + random.below(static_cast<std::uint64_t>(stride));
    candidates_[static_cast<std::size_t>(i)].value = values[static_cast<std::size_t>(at)];
  }
  return border_of(std::span(candidates_).first(kSample), place).order;
}

// [Note: top-k in one pass] All that may be among the largest is collected: what has at least the order of a
// floor. When there is no more room, the largest so far stay, and the floor rises above the last of them: a
// later element of the same order would come after it. Between two such times at least half as many elements
// are looked at as were chosen from, so that no input takes more than linear time. The floor of the beginning
// is guessed, so that this hardly happens; where it was too high, all begins again from 0.
bool Selection::collect(std::span<const float> values, std::uint32_t floor, std::span<Coordinate> chosen) {
  const auto count = std::ssize(chosen);
  Collected collected{.coordinates = candidates_.data(), .count = 0, .capacity = std::ssize(candidates_)};
  std::int64_t at = 0;
  while (true) {
    at = kernels_->collect(values.data(), at, std::ssize(values), floor, collected);
    const std::span<const Coordinate> candidates(collected.coordinates,
                                                 static_cast<std::size_t>(collected.count));
    if (collected.count < count) {
      return false;
    }
    const Border border = border_of(candidates, count);
    if (at == std::ssize(values)) {
      copy_largest(candidates, border, chosen.data());
      return true;
    }
    copy_largest(candidates, border, candidates_.data());
    collected.count = count;
    floor = border.order + 1;
  }
}

void Selection::largest(std::span<const float> values, std::span<Coordinate> chosen) {
  if (chosen.empty()) {
    return;
  }
  const std::size_t room = chosen.size() + std::max<std::size_t>(chosen.size() / 2, 8192);
  if (candidates_.size() < room) {
    candidates_.resize(room);
  }
  const std::uint32_t floor = guess(values, std::ssize(chosen));
  if (!collect(values, floor, chosen)) {
    collect(values, 0, chosen);
  }
}

void TopK::choose(std::span<const float> values, std::uint64_t /*key*/, std::int64_t /*step*/,
                  std::span<Coordinate> chosen) {
  selection_.largest(values, chosen);
}

}  // namespace dear::codec
