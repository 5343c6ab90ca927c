#include "studies/aggregation/sparse_sum.h"

#include <algorithm>
#include <array>
#include <exception>
#include <type_traits>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/sketch_shape.h"

namespace dear::studies::aggregation {
namespace {

constexpr std::array<std::string_view, 6> kOutcomes = {"sketch",  "not finite",    "overflow",
                                                       "inexact", "too many keys", "entangled"};

// Two workers with other shapes or scales have other labels.
std::uint64_t label_of(const codec::SketchShape& shape, int scale) {
  Digest digest;
  for (const std::int64_t size : {shape.elements, shape.block, std::int64_t{shape.ranks}, shape.groups,
                                  shape.range, shape.bloom_lines, std::int64_t{shape.bloom_bits}})
    digest.add(static_cast<std::uint64_t>(size));
  return digest.add(shape.seed).add(static_cast<std::uint64_t>(scale)).value();
}

Outcome outcome_of(const codec::Reading& reading) {
  if (!reading.header.not_finite.empty()) return Outcome::not_finite;
  if (!reading.header.overflow.empty()) return Outcome::overflow;
  if (!reading.header.inexact.empty()) return Outcome::inexact;
  return reading.fits ? Outcome::sketch : Outcome::too_many_keys;
}

}  // namespace

std::string_view name_of(Outcome outcome) { return kOutcomes[static_cast<std::size_t>(outcome)]; }

void add_dense(Worker& worker, std::span<const float> values, std::span<float> sums) {
  const Payload mine =
      worker.prepare({.values = static_cast<std::int64_t>(values.size()), .dtype = DType::f32});
  std::copy(values.begin(), values.end(), mine.values_as<float>().begin());
  const Payload all = worker.exchange();
  std::copy_n(all.values_as<float>().begin(), sums.size(), sums.begin());
}

SparseSum::SparseSum(Worker& worker, const SparseSumOptions& options) : worker_(&worker), options_(options) {
  recovered_.resize(static_cast<std::size_t>(worker.workers()));
  make_sketch();
}

// A shape has as many owners as there are workers, so that the header of the index names each; but here every
// worker recovers the parts of all owners.
void SparseSum::make_sketch() {
  sketch_.emplace(
      codec::shape_for(options_.sketch, options_.elements, worker_->workers(), options_.keys, options_.seed));
}

Summed SparseSum::add(std::span<const float> values, std::span<float> sums) {
  try {
    return options_.sketch.exact ? add_sketch<std::int64_t>(values, sums) : add_sketch<float>(values, sums);
  } catch (const std::exception& error) {
    worker_->abort(error.what());
    throw;
  }
}

template <typename T>
Summed SparseSum::add_sketch(std::span<const float> values, std::span<float> sums) {
  const codec::SketchShape& shape = sketch_->shape();
  const Payload mine = worker_->prepare({.words = shape.index_words(),
                                         .values = shape.values(),
                                         .dtype = std::is_integral_v<T> ? DType::i64 : DType::f32,
                                         .label = label_of(shape, scale_)});
  sketch_->encode<T>(values, worker_->rank(), scale_, mine.words, mine.values_as<T>());
  Summed summed;
  int exponent = codec::kNoScale;
  int owner = 0;  // whose rows come next
  worker_->exchange([&](const Payload& all, std::int64_t came) {
    if (came == 0) {
      const codec::Reading reading = sketch_->read(all.words);
      summed = {
          .outcome = outcome_of(reading), .not_finite = reading.header.not_finite, .keys = reading.keys};
      exponent = reading.header.exponent;
      std::fill(sums.begin(), sums.end(), 0.0F);
      return;
    }
    for (; summed.outcome == Outcome::sketch && owner < shape.ranks &&
           came >= (owner + 1) * shape.values_per_owner();
         ++owner)
      recover<T>(owner, all.values_as<T>(), summed);
  });
  if (summed.outcome == Outcome::sketch) {
    const std::vector<std::span<const float>> parts(recovered_.begin(), recovered_.end());
    sketch_->spread(parts, sums);
  } else {
    add_dense(*worker_, values, sums);
  }
  learn(summed, exponent);
  return summed;
}

// Recovers the part of one owner from the rows of all.
template <typename T>
void SparseSum::recover(int owner, std::span<T> rows, Summed& summed) {
  const codec::SketchShape& shape = sketch_->shape();
  const auto per_owner = static_cast<std::size_t>(shape.values_per_owner());
  const std::span<T> part = rows.subspan(static_cast<std::size_t>(owner) * per_owner, per_owner);
  std::vector<float>& values = recovered_[static_cast<std::size_t>(owner)];
  values.resize(static_cast<std::size_t>(sketch_->keys_of(owner) * shape.block));
  codec::Peeled peeled;
  if constexpr (std::is_integral_v<T>) {
    integers_.resize(values.size());
    peeled = sketch_->peel<T>(owner, part, integers_);
    codec::unscale(std::span<const T>(integers_), scale_, values);
  } else {
    peeled = sketch_->peel<T>(owner, part, std::span(values));
  }
  if (peeled.unpeeled > 0) summed.outcome = Outcome::entangled;
  summed.rounds = std::max(summed.rounds, peeled.rounds);
}

// Decides on the next sketch by what every worker has read in the same index.
void SparseSum::learn(const Summed& summed, int exponent) {
  if (options_.sketch.exact && exponent != codec::kNoScale)
    scale_ = codec::scale_for(DType::i64, exponent, worker_->workers());
  if (summed.outcome == Outcome::too_many_keys || summed.outcome == Outcome::entangled) {
    // More rows; and other rows for keys that met in all of theirs.
    options_.keys = std::max(1.1 * options_.keys, static_cast<double>(summed.keys));
    ++options_.seed;
    make_sketch();
  }
}

}  // namespace dear::studies::aggregation
