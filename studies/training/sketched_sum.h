#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "dear/schedule/codec/peel.h"
#include "dear/schedule/codec/sketch.h"

namespace dear::studies::training {

struct Summed {
  bool recovered = false;  // else the sums mean nothing
  std::int64_t keys = 0;   // of the union
  int exponent = codec::kNoScale;
  int rounds = 0;  // of peeling
};

// The sum of all workers' values by a sketch, as collectives carry it: each worker encodes, indices are
// combined by or, rows are added in the order of workers, and every owner peels its part. T: float, or
// std::int64_t for fixed point at `scale`, whose sums are rounded once.
template <typename T>
Summed sum_by_sketch(codec::Sketch& sketch, const std::vector<std::vector<float>>& by_worker, int scale,
                     std::span<float> sums) {
  const codec::SketchShape& shape = sketch.shape();
  const auto words = static_cast<std::size_t>(shape.index_words());
  const auto per_owner = static_cast<std::size_t>(shape.values_per_owner());
  std::vector<std::uint64_t> index(words), one_index(words);
  std::vector<T> rows(static_cast<std::size_t>(shape.values())), one(rows.size());
  for (std::size_t worker = 0; worker < by_worker.size(); ++worker) {
    sketch.encode<T>(by_worker[worker], static_cast<int>(worker), scale, one_index, one);
    for (std::size_t i = 0; i < words; ++i) index[i] |= one_index[i];
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = codec::sum_of(rows[i], one[i]);
  }
  const codec::Reading reading = sketch.read(index);
  Summed summed{.recovered = reading.usable(), .keys = reading.keys, .exponent = reading.header.exponent};
  if (!summed.recovered) return summed;
  std::vector<std::vector<float>> recovered;
  for (int owner = 0; owner < shape.ranks; ++owner) {
    std::vector<T> values(static_cast<std::size_t>(sketch.keys_of(owner) * shape.block));
    const codec::Peeled peeled = sketch.peel<T>(
        owner, std::span(rows).subspan(static_cast<std::size_t>(owner) * per_owner, per_owner), values);
    summed.recovered &= peeled.unpeeled == 0;
    summed.rounds = std::max(summed.rounds, peeled.rounds);
    if constexpr (std::is_same_v<T, float>) {
      recovered.push_back(std::move(values));
    } else {
      recovered.emplace_back(values.size());
      codec::unscale(std::span<const T>(values), scale, recovered.back());
    }
  }
  std::fill(sums.begin(), sums.end(), 0.0F);
  const std::vector<std::span<const float>> parts(recovered.begin(), recovered.end());
  sketch.spread(parts, sums);
  return summed;
}

}  // namespace dear::studies::training
