#pragma once

#include <functional>

#include "dear/schedule/codec/codec_times.h"

namespace dear::codec {

// A Timer tells the seconds of `work`, each time done after `before`, which does not count.
using Action = std::function<void()>;
using Timer = std::function<double(const Action& before, const Action& work)>;
// Returns the median of five times, after one that warms up.
double median_seconds(const Action& before, const Action& work);

// Encodes and decodes 16 MiB of made-up gradients on this thread, in a few tenths of a second, with error
// feedback, momentum and weight decay as the compression has them. `ranks` have a payload each where payloads
// are gathered; gradients of a sketch are zero but for `union_density` of their keys. ConfigError for a
// compression that validate() refuses.
CodecTimes measure_codec(const Compression& compression, int ranks, double union_density,
                         const Timer& timer = median_seconds);

}  // namespace dear::codec
