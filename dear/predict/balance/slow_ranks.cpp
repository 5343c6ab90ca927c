#include "dear/predict/balance/slow_ranks.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace dear {
namespace {

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename Of>
double median(const std::vector<ComputeSeconds>& ranks, Of of) {
  std::vector<double> values;
  for (const ComputeSeconds& rank : ranks) values.push_back(of(rank));
  return median_of(std::move(values));
}

}  // namespace

SlowRanks::SlowRanks(std::vector<std::string> hosts, SlowRankLimits limits)
    : hosts_(std::move(hosts)), limits_(limits), behind_(hosts_.size()), for_seconds_(hosts_.size()) {}

std::vector<std::string> SlowRanks::window_ended(const std::vector<ComputeSeconds>& ranks,
                                                 double window_seconds) {
  std::vector<std::string> sentences;
  const double typical = median(ranks, [](const ComputeSeconds& one) { return one.sum(); });
  const double forward = median(ranks, [](const ComputeSeconds& one) { return one.forward; });
  const double backward = median(ranks, [](const ComputeSeconds& one) { return one.backward; });
  for (std::size_t rank = 0; rank < std::min(ranks.size(), hosts_.size()); ++rank) {
    const ComputeSeconds& one = ranks[rank];
    if (!(typical > 0) || !(one.sum() >= (1 + limits_.behind) * typical)) {
      behind_[rank] = 0;
      for_seconds_[rank] = 0;
      continue;
    }
    for_seconds_[rank] += window_seconds;
    if (++behind_[rank] != limits_.windows) continue;
    const bool in_forward = one.forward - forward > one.backward - backward;
    sentences.push_back(
        fmt::format("rank {} on host {} computes {:.0f} % longer than the median rank for {:.0f} s now: "
                    "{:.3g} ms a step beside "
                    "{:.3g} ms, most of it {}: look at that host, or share batches by speed (balance)",
                    rank, hosts_[rank], 100 * (one.sum() / typical - 1), for_seconds_[rank], 1e3 * one.sum(),
                    1e3 * typical,
                    in_forward ? "before its first gradient (data, forward pass)"
                               : "from its first gradient on (backward pass, update)"));
  }
  return sentences;
}

}  // namespace dear
