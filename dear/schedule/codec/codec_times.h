#pragma once

#include "dear/schedule/codec/compression.h"

namespace dear {

// How long a codec takes on one machine: seconds for each byte of the gradients that it encodes. For sketches
// and low rank: of their first and their second encoding.
struct CodecTimes {
  double encode_seconds_per_byte = 0;
  double second_encode_seconds_per_byte = 0;
  double decode_seconds_per_byte = 0;
  double step_seconds = 0;  // of each encoding and decoding besides, whatever its bytes: launches of kernels
  // Whether the codec works on what the program computes with, so that one waits while the other works: the
  // one device of a rank, or its cores where the program uses them all. Else it has cores of its own.
  bool shares_compute = false;
};

namespace codec {

// Bytes that the memory of a device moves for each byte of gradients, reads and writes: what a codec on a
// device of much arithmetic waits for.
struct MemoryTraffic {
  double encode = 0;  // with error feedback, momentum and weight decay
  double second_encode = 0;
  double decode = 0;
  int kernels = 0;  // that a step launches, one for all tensors of a bucket
};

// Estimated from what each scheme has to touch; codec_times.cpp has the reasons. `ranks` have a payload each
// where payloads are gathered; `union_density` is of the elements that a sketch carries.
MemoryTraffic memory_traffic_of(const Compression& compression, int ranks, double union_density);

// Returns the times on a device whose memory moves so many bytes a second, and which takes so long to launch
// a kernel.
CodecTimes times_by_memory(const MemoryTraffic& traffic, double bytes_per_second, double launch_seconds);

}  // namespace codec
}  // namespace dear
