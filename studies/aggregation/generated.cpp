#include "studies/aggregation/generated.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace dear::studies::aggregation {
namespace {

constexpr double kGrid = 1024;

std::mt19937_64 generator_for(std::uint64_t seed, std::int64_t step, int worker) {
  std::seed_seq sequence{seed & 0xffff'ffff, seed >> 32, static_cast<std::uint64_t>(step),
                         static_cast<std::uint64_t>(worker + 1)};
  return std::mt19937_64(sequence);
}

float on_grid(float value) {
  const double whole = std::round(std::clamp(static_cast<double>(value), -7.0, 7.0) * kGrid);
  return static_cast<float>((whole == 0 ? 1 : whole) / kGrid);
}

}  // namespace

void generate(const GeneratedGradients& gradients, int worker, std::int64_t step, std::span<float> values) {
  std::fill(values.begin(), values.end(), 0.0F);
  std::mt19937_64 shared = generator_for(gradients.seed, step, -1);  // draws the same on every worker
  std::mt19937_64 own = generator_for(gradients.seed, step, worker);
  std::geometric_distribution<std::int64_t> gap(std::min(gradients.density, 1 - 1e-12));
  std::uniform_int_distribution<int> owner(0, gradients.workers - 1);
  std::normal_distribution<float> normal;
  const auto elements = static_cast<std::int64_t>(values.size());
  for (std::int64_t element = gap(shared); element < elements; element += 1 + gap(shared)) {
    if (owner(shared) != worker && (own() & 1) == 0) continue;
    const float value = normal(own);
    values[static_cast<std::size_t>(element)] = gradients.integers ? on_grid(value) : value;
  }
}

}  // namespace dear::studies::aggregation
