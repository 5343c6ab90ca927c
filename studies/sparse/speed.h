#pragma once

#include "studies/report/by_bandwidth.h"
#include "studies/report/progress.h"
#include <cstdint>
#include <string>
#include <vector>

#include "dear/schedule/codec/codec_times.h"
#include "dear/schedule/codec/compression.h"

namespace dear::studies::sparse {

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
Speeds measure_speeds(const std::vector<Compression>& compressions, const std::vector<int>& ranks, int rounds,
                      const studies::Progress& progress = {});

// Encoding, a ring all-reduce of the payload or a ring all-gather of all ranks' payloads, decoding.
studies::Line line_of(const studies::Traffic& traffic, const CodecSpeed& speed);
// Bytes that a rank encodes its gradients into.
std::int64_t payload_bytes(const studies::Traffic& traffic, const Compression& compression);

}  // namespace dear::studies::sparse
