#include "studies/homomorphic/losslessness.h"

#include "studies/training/gaussian.h"
#include "studies/training/sketched_sum.h"
#include "studies/training/threads.h"
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "dear/schedule/codec/sketch_shape.h"

namespace dear::studies::homomorphic {
namespace {

constexpr int kScale = 30;
constexpr int kWorkers = 4;
constexpr double kUnion = 0.1;
constexpr double kDeviation = 3;
constexpr double kOff = 1e-3;

using Values = std::vector<float>;

std::int64_t union_of(const std::vector<Values>& by_worker) {
  Values any(by_worker.front().size());
  for (const Values& values : by_worker)
    for (std::size_t i = 0; i < any.size(); ++i)
      if (values[i] != 0) any[i] = 1;
  return codec::count_keys(any)[0];
}

Values sparse_values(std::uint64_t seed, std::uint64_t key, std::int64_t elements, double density) {
  codec::Draw draw(seed, 0, 2 * key);
  training::Gaussian gaussian(seed, 2 * key + 1);
  Values values(static_cast<std::size_t>(elements));
  for (float& value : values)
    if (draw.uniform() < 2 * density - 1) value = gaussian();
  return values;
}

void try_once(ExactSums& sums, std::int64_t elements, std::uint64_t seed) {
  std::vector<Values> by_worker;
  std::vector<std::int64_t> dense(static_cast<std::size_t>(elements));
  for (int worker = 0; worker < sums.workers; ++worker) {
    by_worker.push_back(sparse_values(seed, static_cast<std::uint64_t>(worker), elements, sums.density));
    for (std::size_t i = 0; i < dense.size(); ++i) {
      const std::int64_t integer = std::llrint(std::ldexp(by_worker.back()[i], kScale));
      by_worker.back()[i] = std::ldexp(static_cast<float>(integer), -kScale);  // what fixed point holds
      dense[i] += integer;
    }
  }
  const double keys = sums.sized_for * static_cast<double>(union_of(by_worker));
  SketchSpec spec;
  spec.block = 1;
  spec.exact = true;
  codec::Sketch sketch(codec::shape_for(spec, elements, sums.workers, keys, seed));
  Values recovered(dense.size()), rounded(dense.size());
  const training::Summed summed = training::sum_by_sketch<std::int64_t>(sketch, by_worker, kScale, recovered);
  codec::unscale(std::span<const std::int64_t>(dense), kScale, rounded);
  if (!summed.recovered)
    ++sums.reported;
  else
    sums.exact += recovered == rounded ? 1 : 0;
}

// Each element that some worker has, two of the four have.
std::vector<Values> values_for(const FloatError& error, std::int64_t elements, std::uint64_t seed) {
  codec::Draw draw(seed, 0, 0);
  training::Gaussian gaussian(seed, 1);
  std::vector<Values> by_worker(kWorkers, Values(static_cast<std::size_t>(elements)));
  for (std::size_t i = 0; i < by_worker.front().size(); ++i) {
    if (draw.uniform() >= 2 * kUnion - 1) continue;
    const std::uint32_t first = draw.below(kWorkers);
    const std::uint32_t second = (first + 1 + draw.below(kWorkers - 1)) % kWorkers;
    for (const std::uint32_t worker : {first, second}) {
      const float normal = gaussian();
      const double heavy = std::copysign(std::exp(kDeviation * std::abs(double{gaussian()})), double{normal});
      by_worker[worker][i] = error.heavy_tailed ? static_cast<float>(heavy) : normal;
    }
  }
  return by_worker;
}

void try_once(FloatError& error, std::int64_t elements, std::uint64_t seed) {
  const std::vector<Values> by_worker = values_for(error, elements, seed);
  // The fullest owner gets this many keys, within three standard deviations.
  const double keys = static_cast<double>(union_of(by_worker)) / kWorkers;
  const double most = keys + 3 * std::sqrt(keys);
  codec::Sketch sketch({.elements = elements,
                        .ranks = kWorkers,
                        .range = std::llround(std::ceil(error.rows_per_key * most / 3)),
                        .seed = seed});
  Values sums(static_cast<std::size_t>(elements));
  if (!training::sum_by_sketch<float>(sketch, by_worker, 0, sums).recovered) return;
  ++error.recovered;
  double squares = 0, off = 0, off_of_plain = 0, largest = 0, most_off = 0;
  std::int64_t wrong = 0, there = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    double exact = 0;
    float plain = 0;
    for (const Values& values : by_worker) exact += double{values[i]}, plain += values[i];
    const double difference = double{sums[i]} - exact;
    squares += exact * exact;
    off += difference * difference;
    off_of_plain += (double{plain} - exact) * (double{plain} - exact);
    largest = std::max(largest, std::abs(exact));
    most_off = std::max(most_off, std::abs(difference));
    there += exact != 0 ? 1 : 0;
    wrong += std::abs(difference) > kOff * std::abs(exact) ? 1 : 0;
  }
  error.relative += std::sqrt(off / squares);
  error.plain += std::sqrt(off_of_plain / squares);
  error.largest += most_off / largest;
  error.wrong += static_cast<double>(wrong) / static_cast<double>(there);
}

}  // namespace

std::vector<ExactSums> exact_sums(const LosslessnessOptions& options) {
  std::vector<ExactSums> all;
  for (const double sized_for : options.sized_for)
    for (const int workers : options.workers)
      for (const double density : options.densities)
        all.push_back(
            {.workers = workers, .density = density, .sized_for = sized_for, .trials = options.trials});
  training::for_each_in_threads(all.size(), [&](std::size_t i) {
    for (int trial = 0; trial < options.trials; ++trial)
      try_once(all[i], options.elements, static_cast<std::uint64_t>(1 + trial));
  });
  return all;
}

std::vector<FloatError> float_errors(const LosslessnessOptions& options) {
  std::vector<FloatError> all;
  for (const bool heavy_tailed : {false, true})
    for (const double rows_per_key : options.rows_per_key)
      all.push_back({.rows_per_key = rows_per_key, .heavy_tailed = heavy_tailed});
  training::for_each_in_threads(all.size(), [&](std::size_t i) {
    FloatError& error = all[i];
    for (int trial = 0; trial < options.trials_of_floats; ++trial)
      try_once(error, options.elements_of_floats, static_cast<std::uint64_t>(1 + trial));
    const double share = error.recovered > 0 ? 1.0 / error.recovered : 0;
    for (double* const sum : {&error.relative, &error.largest, &error.plain, &error.wrong}) *sum *= share;
  });
  return all;
}

}  // namespace dear::studies::homomorphic
