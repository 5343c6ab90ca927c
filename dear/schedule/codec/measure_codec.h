#pragma once

#include "dear/schedule/codec/codec_times.h"

namespace dear::codec {

// Encodes and decodes 16 MiB of made-up gradients on this thread, in a few tenths of a second: medians of
// several times, with error feedback, momentum and weight decay as the compression has them. `ranks` have a
// payload each where payloads are gathered; gradients of a sketch are zero but for `union_density` of their
// keys. ConfigError for a compression that validate() refuses.
CodecTimes measure_codec(const Compression& compression, int ranks, double union_density);

}  // namespace dear::codec
