#include "dear/schedule/policies/compressed.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/backward_times.h"
#include "dear/schedule/policies/collective.h"

namespace dear {
namespace {

constexpr std::int64_t kFloat = 4;

std::int64_t kept_of(std::int64_t elements, double ratio) {
  return std::max<std::int64_t>(1,
                                static_cast<std::int64_t>(std::floor(ratio * static_cast<double>(elements))));
}

// One bucket's tensors as a codec sees them.
struct Shares {
  std::vector<std::int64_t> segments;   // elements of each
  std::vector<std::int64_t> rows;       // by segment, where segments are tensors
  std::int64_t encoded = 0, dense = 0;  // elements
};

std::int64_t rows_of(TensorId tensor, std::int64_t elements, const std::vector<std::int64_t>& rows) {
  if (!rows.empty() && rows[tensor] > 0) return rows[tensor];
  return std::max<std::int64_t>(1, std::llround(std::sqrt(static_cast<double>(elements))));
}

// Whether two factors are smaller than the matrix.
bool factors_pay(int rank, std::int64_t elements, std::int64_t rows) {
  return rank * (rows + elements / rows) < elements;
}

Shares shares_of(const Compression& compression, const Workload& workload, const Bucket& bucket,
                 const std::vector<std::int64_t>& rows) {
  Shares shares;
  const std::vector<bool> encoded = encoded_tensors(compression, workload, bucket, rows);
  for (std::size_t i = 0; i < bucket.tensors.size(); ++i) {
    const TensorId tensor = bucket.tensors[i];
    const std::int64_t elements = workload.tensors[tensor].elements;
    (encoded[i] ? shares.encoded : shares.dense) += elements;
    if (!encoded[i]) continue;
    shares.segments.push_back(elements);
    shares.rows.push_back(rows_of(tensor, elements, rows));
  }
  const bool by_matrix = compression.scheme == Scheme::low_rank;
  if (compression.scope != Scope::tensor && !by_matrix && shares.encoded > 0)
    shares.segments = {shares.encoded};
  return shares;
}

std::int64_t kept_of(const Shares& shares, double ratio) {
  std::int64_t kept = 0;
  for (const std::int64_t elements : shares.segments) kept += kept_of(elements, ratio);
  return kept;
}

std::vector<EncodedPart> parts_of(const Compression& compression, const Shares& shares, int ranks,
                                  const Sparsity& sparsity) {
  using Way = EncodedPart::Way;
  const std::int64_t kept = kept_of(shares, compression.ratio);
  const auto segments = static_cast<std::int64_t>(shares.segments.size());
  switch (compression.scheme) {
    case Scheme::fp16:
    case Scheme::bf16:
      return {{.bytes = shares.encoded * 2}};
    case Scheme::low_rank: {
      std::int64_t left = 0, right = 0;
      for (std::size_t i = 0; i < shares.segments.size(); ++i) {
        left += shares.rows[i] * compression.rank * kFloat;
        right += shares.segments[i] / shares.rows[i] * compression.rank * kFloat;
      }
      return {{.way = Way::reduced, .bytes = left}, {.way = Way::halves, .round = 1, .bytes = right}};
    }
    case Scheme::sketch: {
      const auto block = static_cast<double>(std::max<std::int64_t>(1, compression.sketch.block));
      const double keys = static_cast<double>(shares.encoded) / block;
      const double values = std::max(1.0, keys * sparsity.union_density) * block;
      const double size = compression.sketch.exact ? 8 : kFloat;
      return {{.way = Way::reduced, .bytes = std::llround(std::ceil(keys / 8))},
              {.way = Way::halves, .round = 1, .bytes = std::llround(size * values)}};
    }
    case Scheme::random_k:
      if (!compression.own_indices) return {{.bytes = kept * kFloat}};
      [[fallthrough]];
    case Scheme::top_k:
      return {{.way = Way::gathered, .bytes = ranks * kept * 2 * kFloat}};
    case Scheme::random_block:
      if (!compression.own_indices) return {{.bytes = kept * kFloat}};
      [[fallthrough]];
    case Scheme::block_top_k:
      break;
  }
  return {{.way = Way::gathered, .bytes = ranks * (kept + segments) * kFloat}};
}

bool is_gathered(const Encoding& encoding) {
  return !encoding.dense() && encoding.parts.front().way == EncodedPart::Way::gathered;
}

// Decides for each bucket whose payload is gathered whether it goes under the backward or the next forward.
void place_gathers(std::vector<Encoding>& encodings, const Workload& workload, const Grouping& grouping,
                   const cost::CollectiveTimes& times) {
  const std::vector<double> ready = ready_seconds(workload, grouping);
  const double backward = workload.backward_seconds();
  std::int64_t all = 0, before = 0;
  for (const Encoding& encoding : encodings)
    if (is_gathered(encoding)) all += encoding.parts.front().bytes;
  double free_at = 0;
  for (std::size_t bucket = encodings.size(); bucket-- > 0;) {
    Encoding& encoding = encodings[bucket];
    if (encoding.dense()) {
      free_at = std::max(free_at, ready[bucket]) +
                seconds_of(Collective::reduce_scatter, grouping.buckets()[bucket].bytes, times);
      continue;
    }
    if (!is_gathered(encoding)) continue;
    const std::int64_t bytes = encoding.parts.front().bytes;
    if (backward > 0 && times.all_gather) {
      const double encoded_at = ready[bucket] + std::accumulate(encoding.encode_seconds.begin(),
                                                                encoding.encode_seconds.end(), 0.0);
      const double end = std::max(free_at, encoded_at) + seconds_of(Collective::all_gather, bytes, times);
      encoding.gathers_late = end > backward;
      if (!encoding.gathers_late) free_at = end;
    } else {
      encoding.gathers_late = 2 * before >= all;
      before += bytes;
    }
  }
}

}  // namespace

std::vector<bool> encoded_tensors(const Compression& compression, const Workload& workload,
                                  const Bucket& bucket, const std::vector<std::int64_t>& rows) {
  std::vector<bool> encoded;
  for (const TensorId id : bucket.tensors) {
    const Tensor& tensor = workload.tensors[id];
    encoded.push_back(bucket.dtype == DType::f32 && !compression.leaves_dense(tensor.name, tensor.elements) &&
                      (compression.scheme != Scheme::low_rank ||
                       factors_pay(compression.rank, tensor.elements, rows_of(id, tensor.elements, rows))));
  }
  return encoded;
}

std::vector<Encoding> encodings_of(const Compression& compression, const Workload& workload,
                                   const Grouping& grouping, const cost::CollectiveTimes& times,
                                   const CodecTimes& codec, const Sparsity& sparsity,
                                   const std::vector<std::int64_t>& rows) {
  std::vector<Encoding> encodings(grouping.size());
  for (BucketId id = 0; id < grouping.size(); ++id) {
    const Shares shares = shares_of(compression, workload, grouping.buckets()[id], rows);
    if (shares.encoded == 0) continue;
    Encoding& encoding = encodings[id];
    encoding.parts = parts_of(compression, shares, times.ranks, sparsity);
    if (shares.dense > 0) encoding.parts.push_back({.bytes = shares.dense * kFloat});
    const auto bytes = static_cast<double>(shares.encoded * kFloat);
    const auto seconds = [&](double per_byte) { return codec.step_seconds + bytes * per_byte; };
    encoding.encode_seconds = {seconds(codec.encode_seconds_per_byte)};
    if (encoding.rounds() > 1)
      encoding.encode_seconds.push_back(seconds(codec.second_encode_seconds_per_byte));
    encoding.decode_seconds = seconds(codec.decode_seconds_per_byte);
  }
  place_gathers(encodings, workload, grouping, times);
  return encodings;
}

void validate(const Sparsity& sparsity) {
  if (!(sparsity.union_density > 0 && sparsity.union_density <= 1))
    throw ConfigError(
        fmt::format("a union density of {} is not above 0 and at most 1: give the part of a gradient's "
                    "elements that is not zero on one rank at least, as 0.05",
                    sparsity.union_density));
}

CompressedSchedule make_compressed_schedule(const Policy& policy, const Workload& workload,
                                            const Grouping& grouping, const cost::CollectiveTimes& times,
                                            const CompressionModel& model) {
  const auto& [compression, codec, sparsity] = model;
  require_policy_that_compresses(policy);
  validate(compression);
  validate(sparsity);
  if (compression.scheme == Scheme::sketch && sparsity.union_density > compression.sketch.most_density)
    throw ConfigError(
        fmt::format("of a union density of {} nothing travels as {}: above {} all is sent dense; raise "
                    "most-density, or expect fewer elements",
                    sparsity.union_density, compression.text(), compression.sketch.most_density));
  std::vector<Encoding> encodings = encodings_of(compression, workload, grouping, times, codec, sparsity);
  const auto encoded =
      std::count_if(encodings.begin(), encodings.end(), [](const Encoding& one) { return !one.dense(); });
  if (encoded == 0)
    throw ConfigError(
        fmt::format("nothing of '{}' would travel as {}: compression is of tensors of fp32 with {} elements "
                    "or more whose names do not match {}",
                    workload.name, compression.text(), compression.dense_below,
                    fmt::join(compression.dense_names, ", ")));
  if (compression.scope == Scope::model && encoded > 1)
    throw ConfigError(
        fmt::format("{} is of the whole model, and {} buckets are to be encoded: use fusion all",
                    compression.text(), encoded));
  try {
    return {.schedule = with_encodings(make_schedule(policy, workload, grouping, times), workload, grouping,
                                       encodings),
            .encodings = encodings};
  } catch (const ScheduleError& error) {
    throw ConfigError(error.what());  // what was asked for, not what was made
  }
}

}  // namespace dear
