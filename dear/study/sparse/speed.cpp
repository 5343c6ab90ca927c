#include "dear/study/sparse/speed.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/codec/codec.h"
#include "dear/codec/measure_codec.h"
#include "dear/cost/ring.h"

namespace dear::study::sparse {
namespace {

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double load_of_this_machine() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load : 0;
}

std::string this_machine() {
  std::string name = "unknown processor";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    name = line.substr(colon + 2);
    break;
  }
  return fmt::format("{}, {} cores", name, std::thread::hardware_concurrency());
}

// The two ends of a time that is linear in beta.
template <class Seconds>
Line line_through(const Traffic& traffic, double codec_seconds, const Seconds& seconds) {
  const double start = seconds(Link{.alpha_seconds = traffic.alpha_seconds, .beta_seconds_per_byte = 0});
  return {.start = codec_seconds + start,
          .bytes = seconds(Link{.alpha_seconds = 0, .beta_seconds_per_byte = 1})};
}

std::vector<codec::Segment> one_segment(const Traffic& traffic) {
  return {{.range = {0, traffic.elements}, .key = 0}};
}

}  // namespace

Speeds measure_speeds(const std::vector<Compression>& compressions, const std::vector<int>& ranks,
                      int rounds) {
  if (rounds < 1) throw ConfigError(fmt::format("{} rounds measure nothing: one at least", rounds));
  Speeds speeds{.machine = this_machine(), .load = load_of_this_machine(), .codecs = {}};
  for (const int size : ranks)
    for (const Compression& compression : compressions)
      speeds.codecs.push_back({.compression = compression, .ranks = size, .times = {}});
  std::vector<std::vector<double>> encode(speeds.codecs.size()), decode(speeds.codecs.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < speeds.codecs.size(); ++i) {
      const CodecTimes times = codec::measure_codec(speeds.codecs[i].compression, speeds.codecs[i].ranks, 1);
      encode[i].push_back(times.encode_seconds_per_byte);
      decode[i].push_back(times.decode_seconds_per_byte);
    }
  }
  for (std::size_t i = 0; i < speeds.codecs.size(); ++i) {
    speeds.codecs[i].times.encode_seconds_per_byte = median_of(encode[i]);
    speeds.codecs[i].times.decode_seconds_per_byte = median_of(decode[i]);
  }
  return speeds;
}

std::int64_t payload_bytes(const Traffic& traffic, const Compression& compression) {
  const std::int64_t step = compression.warm_up_steps;
  if (compression.gathers()) return codec::make_gatherable(compression, one_segment(traffic), 0)->bytes(step);
  const auto codec = codec::make_reducible(compression, one_segment(traffic));
  return codec->elements(step) * size_of(codec->dtype());
}

Line dense_line(const Traffic& traffic, int ranks) {
  return line_through(traffic, 0, [&](const Link& link) {
    return cost::ring_all_reduce_seconds(link, ranks, 4 * traffic.elements);
  });
}

Line line_of(const Traffic& traffic, const CodecSpeed& speed) {
  const std::int64_t payload = payload_bytes(traffic, speed.compression);
  const double codec_seconds = 4 * static_cast<double>(traffic.elements) *
                               (speed.times.encode_seconds_per_byte + speed.times.decode_seconds_per_byte);
  return line_through(traffic, codec_seconds, [&](const Link& link) {
    return speed.compression.gathers()
               ? cost::ring_all_gather_seconds(link, speed.ranks, speed.ranks * payload)
               : cost::ring_all_reduce_seconds(link, speed.ranks, payload);
  });
}

double loses_from(const Line& line, const Line& dense) {
  const double saved_bytes = dense.bytes - line.bytes;
  if (saved_bytes <= 0) return line.start >= dense.start ? 0 : std::numeric_limits<double>::infinity();
  const double lost_seconds = line.start - dense.start;
  return lost_seconds <= 0 ? std::numeric_limits<double>::infinity() : saved_bytes / lost_seconds;
}

}  // namespace dear::study::sparse
