#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "dear/platform/cluster/network.h"

// How long gradients take to be added up, by the bandwidth of the network, in closed form.
namespace dear::studies {

// The gradients of an iteration, and what each message waits besides.
struct Traffic {
  std::int64_t elements = std::int64_t{16} << 20;  // of fp32
  double alpha_seconds = 50e-6;
};

// Seconds of an iteration's communication, nothing hidden under computation: start + bytes * beta.
struct Line {
  double start = 0;
  double bytes = 0;
  [[nodiscard]] double seconds(double bytes_per_second) const { return start + bytes / bytes_per_second; }
};
// The line of `seconds`, which has to be linear in beta, after `codec_seconds` of computation.
Line line_through(double alpha_seconds, double codec_seconds,
                  const std::function<double(const Link&)>& seconds);
Line dense_line(const Traffic& traffic, int ranks);  // a ring all-reduce

// From which bandwidth on, in bytes a second, `line` takes as long as `dense`: infinite where at none, 0
// where at every.
double loses_from(const Line& line, const Line& dense);

std::string bandwidth_text(double bytes_per_second);  // "12.3 Gb/s", "nowhere" for infinity, "everywhere"
std::string milliseconds(double seconds);             // "12.34"

}  // namespace dear::studies
