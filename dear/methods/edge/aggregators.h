#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// How the updates of devices become one model.
namespace dear::methods::edge {

enum class Way : std::uint8_t {
  digital,       // encoded, each in a band of its own
  shifted,       // with shifts that keep devices from drifting to their own minima
  analogue,      // all at the same time, over the air
  hierarchical,  // small cells average several times, then their base stations once
  gossip         // neighbours average; nobody has all
};

struct Aggregator {
  std::string_view name, summary;
  Way way = Way::digital;
  std::string_view quantiser = "fp32";
};
const std::vector<Aggregator>& aggregators();
const Aggregator& find_aggregator(std::string_view name);

// sum_i w_i x_i. ConfigError for weights that do not sum to 1, and where nobody sent.
std::vector<double> weighted_mean(const std::vector<std::vector<double>>& vectors,
                                  std::span<const double> weights);
// The sign that most have, times the mean of their magnitudes; zero in a tie.
std::vector<double> majority(const std::vector<std::vector<double>>& signs);

}  // namespace dear::methods::edge
