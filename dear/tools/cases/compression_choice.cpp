#include "dear/tools/cases/compression_choice.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/measure_codec.h"
#include "dear/workload/zoo/device.h"

namespace dear::cases {
namespace {

constexpr std::string_view kBeside = ",beside";

std::string per_second(double seconds_per_byte) {
  return fmt::format("{:.3g} GB/s", 1e-9 / seconds_per_byte);
}

std::string sentence_of(const Compression& compression, const CodecChoice::Known& known) {
  const CodecTimes& times = known.times;
  const double encode = times.encode_seconds_per_byte + times.second_encode_seconds_per_byte;
  if (encode == 0) return fmt::format("{}: the codec takes no time", compression.text());
  return fmt::format("{}: the codec encodes {} and decodes {} of gradients, {}, {}", compression.text(),
                     per_second(encode), per_second(times.decode_seconds_per_byte), known.origin,
                     times.shares_compute ? "in turns with computation" : "beside computation");
}

}  // namespace

CodecChoice CodecChoice::parse(std::string_view text) {
  CodecChoice choice;
  std::string_view kind = text;
  if (kind.ends_with(kBeside)) {
    choice.beside_ = true;
    kind.remove_suffix(kBeside.size());
  }
  if (kind == "auto") {
    choice.kind_ = Kind::usual;
  } else if (kind == "roofline") {
    choice.kind_ = Kind::roofline;
  } else if (kind == "measured") {
    choice.kind_ = Kind::measured;
  } else if (kind == "none") {
    choice.kind_ = Kind::none;
  } else {
    throw ConfigError(
        fmt::format("there is no codec time '{}': choose auto, roofline, measured or none, and add "
                    "{} where the codec has cores of its own",
                    text, kBeside));
  }
  return choice;
}

CodecChoice::Known CodecChoice::resolve(const Compression& compression, const Sparsity& sparsity,
                                        const Scenario& scenario, int ranks) const {
  if (kind_ == Kind::none) return {};
  const bool roofline = kind_ == Kind::roofline || (kind_ == Kind::usual && !scenario.device.empty());
  if (roofline && scenario.device.empty())
    throw ConfigError(
        fmt::format("of the device of '{}' nothing is known: have its codec measured, or choose none",
                    scenario.workload.name));
  Known known;
  if (roofline) {
    const zoo::Device& device = zoo::find_device(scenario.device);
    known.times =
        codec::times_by_memory(codec::memory_traffic_of(compression, ranks, sparsity.union_density),
                               device.bytes_per_second * device.memory_efficiency, device.launch_seconds);
    known.origin = fmt::format("by the roofline of {}", device.name);
  } else {
    known.times = codec::measure_codec(compression, ranks, sparsity.union_density);
    known.origin = "as measured here on one thread";
  }
  known.times.shares_compute = !beside_;
  return known;
}

Compressions::Compressions(const CompressionNames& names)
    : codec_(CodecChoice::parse(names.codec)), sparsity_{.union_density = names.union_density} {
  for (const std::string& text : names.compressions) compressions_.push_back(Compression::parse(text));
  validate(sparsity_);
}

std::vector<Compressions::Modelled> Compressions::in(const Scenario& scenario, int ranks) {
  std::vector<Modelled> modelled;
  for (const Compression& compression : compressions_) {
    const auto [place, is_new] = known_.try_emplace({compression.text(), scenario.device, ranks});
    if (is_new) place->second = codec_.resolve(compression, sparsity_, scenario, ranks);
    const CodecChoice::Known& known = place->second;
    modelled.push_back({.model = {.compression = compression, .codec = known.times, .sparsity = sparsity_},
                        .codec = sentence_of(compression, known)});
  }
  return modelled;
}

}  // namespace dear::cases
