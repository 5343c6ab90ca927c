#include "dear/schedule/codec/codec_times.h"

namespace dear::codec {
namespace {

// A memory moves sectors of 32 bytes: so many values for each that lies alone.
constexpr double kSector = 8;
// Writing zeros where nothing travelled.
constexpr double kZeros = 1;
constexpr double kReadAll = 1;
constexpr double kReadAndWrite = 2;
// Four histograms of 8 bits each find the k-th largest magnitude of 32 bits; one pass collects.
constexpr double kRadixSelect = 5;
constexpr double kIndex = 1. / 32;  // a bit for each element

// With r the ratio:
//   random-k             reads r in sectors of its own, writes r values
//   random-block         reads r, writes r
//   top-k                selects; writes r values and indices
//   block-top-k          reads all for the norms of blocks, then as random-block
//   decoding of these    writes zeros, then adds each payload: r read, r read and written in sectors
//   fp16, bf16           read all, write half; the other way around
//   low-rank             each product with a narrow matrix reads the matrix, the last one writes it
//   sketch               reads all for the index; reads it, and the values of its keys, and writes these;
//                        decoding writes zeros and the values; those of fixed point travel in 8 bytes
// Decoding then reads the mean once more, to tell whether it is finite.
MemoryTraffic traffic_of_scheme(const Compression& compression, int ranks, double union_density) {
  const double r = compression.ratio, payloads = compression.gathers() ? ranks : 1;
  const double pair = compression.gathers() ? 2 * r : r;  // what names a coordinate, and its value
  const double scattered = kZeros + payloads * (pair + kReadAndWrite * kSector * r);
  const double copied = kZeros + payloads * (r + kReadAndWrite * r);
  switch (compression.scheme) {
    case Scheme::random_k:
      return {.encode = kSector * r + pair, .decode = scattered, .kernels = 2};
    case Scheme::random_block:
      return {.encode = r + r, .decode = copied, .kernels = 2};
    case Scheme::top_k:
      return {.encode = kRadixSelect + pair, .decode = scattered, .kernels = 6};
    case Scheme::block_top_k:
      return {.encode = kReadAll + r + r, .decode = copied, .kernels = 3};
    case Scheme::fp16:
    case Scheme::bf16:
      return {.encode = kReadAll + 0.5, .decode = 0.5 + 1, .kernels = 1};
    case Scheme::low_rank:
      return {.encode = kReadAll, .second_encode = kReadAll, .decode = 1, .kernels = 3};
    case Scheme::sketch:
      break;
  }
  const double in_sectors = compression.sketch.block > 1 ? 1 : kSector;
  const double travelling = compression.sketch.exact ? 2 : 1;  // of the size of an fp32 value
  const double values = (travelling + in_sectors) * union_density;
  return {.encode = kReadAll + kIndex,
          .second_encode = kIndex + values,
          .decode = kZeros + kIndex + values,
          .kernels = 6};
}

}  // namespace

MemoryTraffic memory_traffic_of(const Compression& compression, int ranks, double union_density) {
  MemoryTraffic traffic = traffic_of_scheme(compression, ranks, union_density);
  // It goes as schedule/codec/feedback.h says: gradient and residual are read, m is written; the remainder is
  // read and kept.
  if (compression.feedback) traffic.encode += 3 + 2;
  if (compression.momentum > 0) traffic.encode += 3;  // gradient and momentum are read, momentum is written
  if (compression.weight_decay > 0) traffic.encode += 1;
  traffic.decode += kReadAll;
  return traffic;
}

CodecTimes times_by_memory(const MemoryTraffic& traffic, double bytes_per_second, double launch_seconds) {
  return {.encode_seconds_per_byte = traffic.encode / bytes_per_second,
          .second_encode_seconds_per_byte = traffic.second_encode / bytes_per_second,
          .decode_seconds_per_byte = traffic.decode / bytes_per_second,
          .step_seconds = traffic.kernels * launch_seconds};
}

}  // namespace dear::codec
