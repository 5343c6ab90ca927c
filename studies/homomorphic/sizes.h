#pragma once

#include <cstdint>
#include <vector>

#include "dear/schedule/codec/compression.h"

namespace dear::studies::homomorphic {

// Rows for each key that the codec makes by default, from 1000 keys on.
inline constexpr double kRowsPerKey = 1.3;

// How many times fewer bytes a sketch has than dense gradients of fp32, which is a bound on what it gains.
struct SizeAt {
  double density = 0;  // of the union
  double bound = 0;    // 32 / (1 + 32 rows_per_key density): a bitmap, and rows that all travel twice
  double bitmap = 0;   // index and rows, as the codec makes them
  double bloom = 0;    // likewise with a Bloom filter
  double owners = 0;   // what DeAR sends: owners of rows send back values alone, and the index is automatic
};

struct SizeOptions {
  std::int64_t elements = std::int64_t{16} << 20;
  int ranks = 4;
  double rows_per_key = kRowsPerKey;
  std::vector<double> densities{};
};

std::vector<SizeAt> sizes_by_density(const SizeOptions& options);

// Below this density of the union a Bloom filter makes the smaller sketch.
double index_border(const SizeOptions& options);

// The union of workers each of which has values at random places.
struct UnionAt {
  int workers = 0;
  double density = 0;   // of each
  double expected = 0;  // 1 - (1 - density)^workers
  double seen = 0;      // in the combined index
  // How many times fewer bytes than dense: where all have the same places, and where each has its own; 1
  // where the sketch would not pay, so that the gradients travel dense.
  double gain_of_same = 1, gain_of_own = 1;
};

struct UnionOptions {
  std::int64_t elements = std::int64_t{1} << 18;
  std::vector<int> workers{};
  std::vector<double> densities{};
};
std::vector<UnionAt> unions(const UnionOptions& options);

// A sketch of single elements with so many rows for each key.
SketchSpec spec_of(double rows_per_key, SketchSpec::Index index = SketchSpec::Index::automatic);

}  // namespace dear::studies::homomorphic
