#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/codec/codec_times.h"
#include "dear/codec/compression.h"

namespace dear::study::sparse {

// How long a codec takes on a machine, of so many ranks.
struct CodecSpeed {
  Compression compression;
  int ranks = 4;
  CodecTimes times;
};

struct Speeds {
  std::string machine;  // "AMD EPYC, 2 cores"
  double load = 0;      // of the machine in the minute before: programs that wanted a core
  std::vector<CodecSpeed> codecs;
};

// Measures every compression with every number of ranks on this thread: medians of `rounds` rounds, in each
// of which all take their turn. ConfigError for less than one round.
Speeds measure_speeds(const std::vector<Compression>& compressions, const std::vector<int>& ranks,
                      int rounds);

// The gradients of an iteration, and what each message waits besides.
struct Traffic {
  std::int64_t elements = std::int64_t{16} << 20;  // of fp32
  double alpha_seconds = 50e-6;
};

// Seconds that an iteration communicates, nothing hidden under computation: start + bytes * beta, in closed
// form: encoding, a ring all-reduce of the payload or a ring all-gather of all ranks' payloads, decoding.
struct Line {
  double start = 0;
  double bytes = 0;
  [[nodiscard]] double seconds(double bytes_per_second) const { return start + bytes / bytes_per_second; }
};
Line dense_line(const Traffic& traffic, int ranks);
Line line_of(const Traffic& traffic, const CodecSpeed& speed);
// Bytes that a rank encodes its gradients into.
std::int64_t payload_bytes(const Traffic& traffic, const Compression& compression);

// From which bandwidth on, in bytes a second, `line` takes as long as `dense`: infinite where at none, 0
// where at every.
double loses_from(const Line& line, const Line& dense);

}  // namespace dear::study::sparse
