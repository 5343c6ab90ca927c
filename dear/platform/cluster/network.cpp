#include "dear/platform/cluster/network.h"

#include <optional>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/cluster/cluster_file.h"

namespace dear {
namespace {

double beta_of(double bits_per_second) { return 8 / bits_per_second; }

// Measured as a ring all-reduce among 64 GPUs that takes 1.706e-9 s per byte of buffer: 2 (P-1)/P beta of it,
// P = 64.
constexpr double kBeta10gbe = 1.706e-9 / 2 * 64 / 63;

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  std::vector<std::string_view> names;
  for (const NetworkPreset& preset : network_presets()) names.push_back(preset.name);
  throw ConfigError(
      fmt::format("network '{}': {}{} use {} or bandwidth=1gbit,latency=50us, or a cluster file", text, why,
                  did_you_mean(text, names), fmt::join(names, ", ")));
}

template <typename Parse>
void parse_once(std::optional<double>& target, Parse parse, std::string_view text, std::string_view key,
                std::string_view value) {
  if (target) refuse(text, fmt::format("{} is given twice", key));
  try {
    target = parse(value);
  } catch (const ConfigError& error) {
    refuse(text, fmt::format("{}: {}", key, error.what()));
  }
}

bool is_rate(std::string_view text) {
  try {
    return parse_bits_per_second(text) > 0;
  } catch (const ConfigError&) {
    return false;
  }
}

Link parse_link(std::string_view text) {
  std::optional<double> bits_per_second;
  std::optional<double> latency_seconds;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::string_view part = text.substr(begin, text.find(',', begin) - begin);
    begin += part.size() + 1;
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      refuse(text, fmt::format("'{}' is not of the form key=value", part));
    const std::string_view key = part.substr(0, equals);
    const std::string_view value = part.substr(equals + 1);
    if (key == "bandwidth") {
      parse_once(bits_per_second, parse_bits_per_second, text, key, value);
    } else if (key == "latency") {
      parse_once(latency_seconds, parse_seconds, text, key, value);
    } else {
      refuse(text, fmt::format("unknown key '{}'", key));
    }
  }
  if (!bits_per_second) refuse(text, "bandwidth is missing");
  if (!latency_seconds) refuse(text, "latency is missing");
  return {.alpha_seconds = *latency_seconds, .beta_seconds_per_byte = beta_of(*bits_per_second)};
}

// Returns the link of a cluster whose ranks share nothing.
Link only_link(const Cluster& cluster) {
  const Dimension& network = cluster.dimensions.front();
  if (cluster.dimensions.size() > 1 || network.wiring != Wiring::switched)
    throw ConfigError(fmt::format(
        "cluster '{}' has {}: as a network, give one whose ranks stand on one switch", cluster.name,
        cluster.dimensions.size() > 1 ? fmt::format("{} dimensions", cluster.dimensions.size())
                                      : "a " + name_of(network.wiring)));
  return {
      .alpha_seconds = network.link.alpha_seconds,
      .beta_seconds_per_byte = network.link.beta_seconds_per_byte / network.links * network.oversubscription};
}

}  // namespace

const std::vector<NetworkPreset>& network_presets() {
  static const std::vector<NetworkPreset> kPresets{
      {.name = "1gbit",
       .summary = "1 Gb/s and 50 us a message: nominal Gigabit Ethernet, start-up as usual for TCP",
       .link = {.alpha_seconds = 50e-6, .beta_seconds_per_byte = beta_of(1e9)}},
      {.name = "10gbe",
       .summary = "9.2 Gb/s and 56 us a message: 10 Gb/s Ethernet as measured on 64 GPUs (arXiv 2302.12445 "
                  "and its code)",
       .link = {.alpha_seconds = 56e-6, .beta_seconds_per_byte = kBeta10gbe}},
      {.name = "100gbib",
       .summary =
           "100 Gb/s nominal and 6.4 us a message: InfiniBand, start-up as in the code of arXiv 2302.12445",
       .link = {.alpha_seconds = 6.4e-6, .beta_seconds_per_byte = beta_of(100e9)}}};
  return kPresets;
}

Network parse_network(std::string_view text) {
  for (const NetworkPreset& preset : network_presets()) {
    if (preset.name == text) return {.name = std::string(text), .link = preset.link};
  }
  if (names_file(text)) {
    const Cluster cluster = read_cluster(std::string(text));
    return {.name = cluster.name, .link = only_link(cluster)};
  }
  if (text.find('=') == std::string_view::npos) {
    refuse(text, is_rate(text) ? fmt::format("a rate alone says nothing of how long a message takes: give "
                                             "bandwidth={},latency=50us",
                                             text)
                               : "there is no such preset");
  }
  return {.name = std::string(text), .link = parse_link(text)};
}

}  // namespace dear
