#include "studies/report/by_bandwidth.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "dear/platform/cost/ring.h"

namespace dear::studies {

Line line_through(double alpha_seconds, double codec_seconds,
                  const std::function<double(const Link&)>& seconds) {
  const double start = seconds(Link{.alpha_seconds = alpha_seconds, .beta_seconds_per_byte = 0});
  return {.start = codec_seconds + start,
          .bytes = seconds(Link{.alpha_seconds = 0, .beta_seconds_per_byte = 1})};
}

Line dense_line(const Traffic& traffic, int ranks) {
  return line_through(traffic.alpha_seconds, 0, [&](const Link& link) {
    return cost::ring_all_reduce_seconds(link, ranks, 4 * traffic.elements);
  });
}

double loses_from(const Line& line, const Line& dense) {
  const double saved_bytes = dense.bytes - line.bytes;
  if (saved_bytes <= 0) return line.start >= dense.start ? 0 : std::numeric_limits<double>::infinity();
  const double lost_seconds = line.start - dense.start;
  return lost_seconds <= 0 ? std::numeric_limits<double>::infinity() : saved_bytes / lost_seconds;
}

std::string bandwidth_text(double bytes_per_second) {
  if (bytes_per_second == 0) return "everywhere";
  if (std::isinf(bytes_per_second)) return "nowhere";
  return fmt::format("{:.3g} Gb/s", 8e-9 * bytes_per_second);
}

std::string milliseconds(double seconds) { return fmt::format("{:.4g}", 1e3 * seconds); }

}  // namespace dear::studies
