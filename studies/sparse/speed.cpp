#include "studies/sparse/speed.h"

#include "studies/report/machine.h"
#include <cstddef>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/ring.h"
#include "dear/schedule/codec/codec.h"
#include "dear/schedule/codec/measure_codec.h"

namespace dear::studies::sparse {
namespace {

std::vector<codec::Segment> one_segment(const studies::Traffic& traffic) {
  return {{.range = {0, traffic.elements}, .key = 0}};
}

}  // namespace

Speeds measure_speeds(const std::vector<Compression>& compressions, const std::vector<int>& ranks, int rounds,
                      const studies::Progress& progress) {
  if (rounds < 1) throw ConfigError(fmt::format("{} rounds measure nothing: one at least", rounds));
  Speeds speeds{.machine = studies::this_machine(), .load = studies::load_of_this_machine(), .codecs = {}};
  for (const int size : ranks)
    for (const Compression& compression : compressions)
      speeds.codecs.push_back({.compression = compression, .ranks = size, .times = {}});
  std::vector<std::vector<double>> encode(speeds.codecs.size()), decode(speeds.codecs.size());
  studies::Pieces pieces(progress, "codecs", speeds.codecs.size() * static_cast<std::size_t>(rounds));
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < speeds.codecs.size(); ++i) {
      const CodecTimes times = codec::measure_codec(speeds.codecs[i].compression, speeds.codecs[i].ranks, 1);
      encode[i].push_back(times.encode_seconds_per_byte);
      decode[i].push_back(times.decode_seconds_per_byte);
      pieces.done_one();
    }
  }
  for (std::size_t i = 0; i < speeds.codecs.size(); ++i) {
    speeds.codecs[i].times.encode_seconds_per_byte = studies::median_of(encode[i]);
    speeds.codecs[i].times.decode_seconds_per_byte = studies::median_of(decode[i]);
  }
  return speeds;
}

std::int64_t payload_bytes(const studies::Traffic& traffic, const Compression& compression) {
  const std::int64_t step = compression.warm_up_steps;
  if (compression.gathers()) return codec::make_gatherable(compression, one_segment(traffic), 0)->bytes(step);
  const auto codec = codec::make_reducible(compression, one_segment(traffic));
  return codec->elements(step) * size_of(codec->dtype());
}

studies::Line line_of(const studies::Traffic& traffic, const CodecSpeed& speed) {
  const std::int64_t payload = payload_bytes(traffic, speed.compression);
  const double codec_seconds = 4 * static_cast<double>(traffic.elements) *
                               (speed.times.encode_seconds_per_byte + speed.times.decode_seconds_per_byte);
  return studies::line_through(traffic.alpha_seconds, codec_seconds, [&](const Link& link) {
    return speed.compression.gathers()
               ? cost::ring_all_gather_seconds(link, speed.ranks, speed.ranks * payload)
               : cost::ring_all_reduce_seconds(link, speed.ranks, payload);
  });
}

}  // namespace dear::studies::sparse
