#pragma once

#include <vector>

#include "dear/platform/cost/collective_times.h"
#include "dear/schedule/codec/codec_times.h"
#include "dear/schedule/codec/compression.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/encoding.h"
#include "dear/schedule/policies/policy.h"
#include "dear/workload/layers/workload.h"

namespace dear {

// Sparsity says what is expected of gradients that a sketch carries.
struct Sparsity {
  double union_density = 0.05;  // of the elements that are not zero on one rank at least
};
void validate(const Sparsity& sparsity);  // ConfigError for a density that is not above 0 and at most 1

// How each bucket travels under a compression: payloads as codec/ makes them with the ratio after warm-up,
// without the padding of shards; tensors that travel dense (Compression::leaves_dense) as one part. A bucket
// of another type than fp32, or of dense tensors alone, travels dense.
//
// Gathered payloads go where they hide: under the backward as long as that lasts, by the workload's times and
// `times`, and the rest under the next forward; without times the half that is ready first goes early.
//
// A low-rank part is that of square matrices, because a workload does not know their shapes; pass `rows` (by
// tensor, 0: as for a square) where they are known.
std::vector<Encoding> encodings_of(const Compression& compression, const Workload& workload,
                                   const Grouping& grouping, const cost::CollectiveTimes& times,
                                   const CodecTimes& codec = {}, const Sparsity& sparsity = {},
                                   const std::vector<std::int64_t>& rows = {});

// Whether tensors of the bucket are encoded under the compression, by tensor of the bucket. Matrices whose
// factors would be no smaller travel dense under low_rank, and with them vectors.
std::vector<bool> encoded_tensors(const Compression& compression, const Workload& workload,
                                  const Bucket& bucket, const std::vector<std::int64_t>& rows = {});

// CompressionModel is a compression as a model of training sees it.
struct CompressionModel {
  Compression compression;
  CodecTimes codec{};
  Sparsity sparsity{};
};

struct CompressedSchedule {
  Schedule schedule;
  std::vector<Encoding> encodings;  // by bucket
};
// The schedule of a policy whose gradients travel compressed. ConfigError where nothing of the workload would
// be encoded, where a scope of the whole model meets several buckets, for a density that cannot be, and for a
// policy that cannot compress: see require_policy_that_compresses().
CompressedSchedule make_compressed_schedule(const Policy& policy, const Workload& workload,
                                            const Grouping& grouping, const cost::CollectiveTimes& times,
                                            const CompressionModel& model);

}  // namespace dear
