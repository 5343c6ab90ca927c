#include "studies/homomorphic/sizes.h"

#include "studies/training/sketched_sum.h"
#include "studies/training/threads.h"
#include <cmath>
#include <cstddef>

#include "dear/schedule/codec/draw.h"
#include "dear/schedule/codec/sketch_shape.h"

namespace dear::studies::homomorphic {
namespace {

constexpr int kHalvings = 20;

// Bytes of the payload that an all-reduce of index and rows carries.
double payload(const SizeOptions& options, SketchSpec::Index index, double density) {
  const double keys = density * static_cast<double>(options.elements);
  const codec::SketchShape shape =
      codec::shape_for(spec_of(options.rows_per_key, index), options.elements, 1, keys, 1);
  return 8 * static_cast<double>(shape.index_words()) + 4 * static_cast<double>(shape.values());
}

double gain(std::int64_t elements, int ranks, double rows_per_key, double density) {
  const SketchSpec spec = spec_of(rows_per_key);
  if (!codec::pays(spec, elements, ranks, density)) return 1;
  const double keys = density * static_cast<double>(elements);
  const codec::SketchShape shape = codec::shape_for(spec, elements, ranks, keys, 1);
  return codec::dense_bytes_sent(elements, ranks) / codec::bytes_sent(shape, keys, DType::f32);
}

double union_seen(std::int64_t elements, int workers, double density) {
  std::vector<std::vector<float>> by_worker;
  for (int worker = 0; worker < workers; ++worker) {
    codec::Draw draw(1, 0, 1, worker);
    by_worker.emplace_back(static_cast<std::size_t>(elements));
    for (float& value : by_worker.back()) value = draw.uniform() < 2 * density - 1 ? 1 : 0;
  }
  const double expected = 1 - std::pow(1 - density, workers);
  codec::Sketch sketch(codec::shape_for(spec_of(kRowsPerKey, SketchSpec::Index::bitmap), elements, workers,
                                        1.1 * expected * static_cast<double>(elements), 1));
  std::vector<float> sums(static_cast<std::size_t>(elements));
  return static_cast<double>(training::sum_by_sketch<float>(sketch, by_worker, 0, sums).keys) /
         static_cast<double>(elements);
}

}  // namespace

SketchSpec spec_of(double rows_per_key, SketchSpec::Index index) {
  SketchSpec spec;
  spec.room = rows_per_key;
  spec.block = 1;
  spec.index = index;
  return spec;
}

std::vector<SizeAt> sizes_by_density(const SizeOptions& options) {
  const double dense = 4 * static_cast<double>(options.elements);
  std::vector<SizeAt> sizes;
  for (const double density : options.densities)
    sizes.push_back({.density = density,
                     .bound = 32 / (1 + 32 * options.rows_per_key * density),
                     .bitmap = dense / payload(options, SketchSpec::Index::bitmap, density),
                     .bloom = dense / payload(options, SketchSpec::Index::bloom, density),
                     .owners = gain(options.elements, options.ranks, options.rows_per_key, density)});
  return sizes;
}

double index_border(const SizeOptions& options) {
  double bloom = 1e-4, bitmap = 0.5;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (bloom + bitmap) / 2;
    const bool bloom_is_smaller = payload(options, SketchSpec::Index::bloom, middle) <
                                  payload(options, SketchSpec::Index::bitmap, middle);
    (bloom_is_smaller ? bloom : bitmap) = middle;
  }
  return bloom;
}

std::vector<UnionAt> unions(const UnionOptions& options) {
  std::vector<UnionAt> all;
  for (const double density : options.densities)
    for (const int workers : options.workers) all.push_back({.workers = workers, .density = density});
  training::for_each_in_threads(all.size(), [&](std::size_t i) {
    UnionAt& one = all[i];
    one.expected = 1 - std::pow(1 - one.density, one.workers);
    one.seen = union_seen(options.elements, one.workers, one.density);
    one.gain_of_same = gain(options.elements, one.workers, kRowsPerKey, one.density);
    one.gain_of_own = gain(options.elements, one.workers, kRowsPerKey, one.seen);
  });
  return all;
}

}  // namespace dear::studies::homomorphic
