#include "dear/methods/edge/aggregators.h"

#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/rounds/vectors.h"

namespace dear::methods::edge {

const std::vector<Aggregator>& aggregators() {
  static const std::vector<Aggregator> kAggregators = {
      {"mean", "whole updates, averaged (FedAvg, arXiv 1602.05629)", Way::digital, "fp32"},
      {"diloco", "the same, and momentum of the server (arXiv 2311.08105)", Way::digital, "fp32"},
      {"qsgd", "levels of the norm, rounded at random (arXiv 1610.02132)", Way::digital, "qsgd"},
      {"ternary", "nothing or the largest magnitude (arXiv 1705.07878)", Way::digital, "ternary"},
      {"sign", "signs, with what they leave out added to the next update", Way::digital, "sign"},
      {"sign-majority", "the majority of signs (arXiv 1810.05291)", Way::digital, "sign-majority"},
      {"top-k", "the largest elements; others wait for the next update", Way::digital, "top-k"},
      {"tamuna",
       "each element from some, with learned shifts (arXiv 2302.09832; of all: Scaffnew, 2202.09357)",
       Way::shifted, "fp32"},
      {"over-the-air", "analogue sums whose scale follows the updates (arXiv 1812.11494, 2009.12787)",
       Way::analogue, "fp32"},
      {"over-the-air-fixed", "the same with the scale of the first round", Way::analogue, "fp32"},
      {"a-dsgd", "projections of the largest elements, and their sum recovered (arXiv 1901.00844)",
       Way::analogue, "top-k"},
      {"hierarchical", "averages in small cells, and now and then of all (arXiv 1909.02362)",
       Way::hierarchical, "fp32"},
      {"gossip", "averages of neighbours, without a server", Way::gossip, "fp32"},
      {"choco", "the same of compressed differences (arXiv 1902.00340)", Way::gossip, "qsgd"},
  };
  return kAggregators;
}

const Aggregator& find_aggregator(std::string_view name) {
  return find_named(aggregators(), name, "aggregator");
}

std::vector<double> weighted_mean(const std::vector<std::vector<double>>& vectors,
                                  std::span<const double> weights) {
  if (vectors.empty()) throw ConfigError("nobody sent an update, so there is no mean: wait for a device");
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (weights.size() != vectors.size() || !(std::abs(sum - 1) <= 1e-9))
    throw ConfigError(fmt::format("{} weights of {} updates sum to {}: they must sum to 1", weights.size(),
                                  vectors.size(), sum));
  std::vector<double> mean(vectors.front().size());
  for (std::size_t i = 0; i < vectors.size(); ++i) rounds::add_scaled(weights[i], vectors[i], mean);
  return mean;
}

std::vector<double> majority(const std::vector<std::vector<double>>& signs) {
  if (signs.empty()) throw ConfigError("nobody sent a sign, so there is no majority: wait for a device");
  std::vector<double> out(signs.front().size());
  double magnitude = 0;
  for (const std::vector<double>& one : signs)
    magnitude += std::abs(one.front()) / static_cast<double>(signs.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    int votes = 0;
    for (const std::vector<double>& one : signs) votes += (one[i] > 0 ? 1 : 0) - (one[i] < 0 ? 1 : 0);
    out[i] = votes == 0 ? 0 : std::copysign(magnitude, votes);
  }
  return out;
}

}  // namespace dear::methods::edge
