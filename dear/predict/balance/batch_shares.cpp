#include "dear/predict/balance/batch_shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

// The first steps make buckets and warm caches.
constexpr std::int64_t kUnmeasured = 3;

std::vector<double> fractions_of(std::vector<double> weights) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= all;
  return weights;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

BatchShares::BatchShares(Balance balance, int ranks)
    : balance_(std::move(balance)), measured_(static_cast<std::size_t>(ranks)), measures_from_(kUnmeasured) {
  const std::vector<double>& weights = balance_.weights;
  if (!weights.empty() && std::ssize(weights) != ranks)
    throw ConfigError(
        fmt::format("a balance of {} weights for {} ranks: give one for each rank", weights.size(), ranks));
  double all = 0;
  for (std::size_t rank = 0; rank < weights.size(); ++rank) {
    all += weights[rank];
    if (!(weights[rank] > 0) || !std::isfinite(all))
      throw ConfigError(
          fmt::format("a balance with the weight {} for rank {}: give numbers above 0, and leave a rank "
                      "that gets no samples out of the job",
                      weights[rank], rank));
  }
  if (balance_.window < 1 || balance_.ahead < 0 || !(balance_.least_gain >= 1))
    throw ConfigError(
        fmt::format("a balance with window {}, least_gain {} and ahead {}: give a window and a gain of at "
                    "least 1, and at least 0 steps ahead",
                    balance_.window, balance_.least_gain, balance_.ahead));
  history_.emplace_back(0, weights.empty() ? std::vector<double>(static_cast<std::size_t>(ranks), 1.0 / ranks)
                                           : fractions_of(weights));
}

const std::vector<double>& BatchShares::fractions_at(std::int64_t step) const {
  const auto after = std::find_if(history_.begin() + 1, history_.end(),
                                  [&](const auto& change) { return change.first > step; });
  return std::prev(after)->second;
}

std::vector<std::int64_t> BatchShares::counts(std::int64_t samples, std::int64_t step) const {
  if (samples < 0) throw ConfigError(fmt::format("a batch of {} samples: give at least 0", samples));
  if (balance_.weights.empty() && step > steps_ + balance_.ahead)
    throw ConfigError(
        fmt::format("the batch of step {} is drawn before step {}, and measured shares are decided {} steps "
                    "ahead: let the loader read fewer batches ahead, or give the balance more `ahead`",
                    step, steps_, balance_.ahead));
  return split(samples, fractions_at(step));
}

void BatchShares::end_step(const std::vector<double>& rates) {
  if (balance_.weights.empty() && steps_ >= measures_from_) {
    for (std::size_t rank = 0; rank < std::min(rates.size(), measured_.size()); ++rank)
      if (rates[rank] > 0 && std::isfinite(rates[rank])) measured_[rank].push_back(rates[rank]);
    if (steps_ - measures_from_ + 1 >= balance_.window) decide();
  }
  ++steps_;
}

// With shares in proportion to speeds all ranks compute equally long. A rate that was measured with another
// number of samples includes what a step costs whatever its samples: repeated decisions find the balance.
void BatchShares::decide() {
  const std::vector<double>& now = history_.back().second;
  std::vector<double> rates;
  for (std::vector<double>& of_rank : measured_) {
    if (2 * std::ssize(of_rank) > balance_.window) rates.push_back(median(of_rank));
    of_rank.clear();
  }
  measures_from_ = steps_ + 1;
  if (rates.size() < now.size()) return;  // a rank has had samples too seldom
  double seconds = 0;
  for (std::size_t rank = 0; rank < now.size(); ++rank) seconds = std::max(seconds, now[rank] / rates[rank]);
  const double best = 1 / std::accumulate(rates.begin(), rates.end(), 0.0);
  if (seconds < best * balance_.least_gain || seconds == best) return;
  // While this step, `steps_`, was under way, loaders may have drawn the batches of `ahead` steps after it.
  const std::int64_t from = steps_ + 1 + balance_.ahead;
  history_.emplace_back(from, fractions_of(std::move(rates)));
  measures_from_ = from + 1;  // ranks say in a step what the one before has measured
}

std::vector<std::int64_t> split(std::int64_t samples, const std::vector<double>& weights) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  const std::int64_t least = samples >= std::ssize(weights) ? 1 : 0;
  std::vector<double> exact;
  std::vector<std::int64_t> counts;
  for (const double weight : weights) {
    exact.push_back(static_cast<double>(samples) * weight / all);
    counts.push_back(std::max(least, static_cast<std::int64_t>(std::floor(exact.back()))));
  }
  std::int64_t left = samples - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  for (; left != 0; left -= left > 0 ? 1 : -1) {
    const double sign = left > 0 ? 1 : -1;
    std::size_t chosen = counts.size();
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      if (sign < 0 && counts[rank] <= least) continue;
      const auto lacks = [&](std::size_t one) {
        return sign * (exact[one] - static_cast<double>(counts[one]));
      };
      if (chosen == counts.size() || lacks(rank) > lacks(chosen)) chosen = rank;
    }
    counts[chosen] += left > 0 ? 1 : -1;
  }
  return counts;
}

std::string text_of(const Balance& balance) {
  if (balance.weights.empty())
    return fmt::format("measured, window {}, least gain {:a}, ahead {}", balance.window, balance.least_gain,
                       balance.ahead);
  std::string text = "weights";
  for (const double weight : balance.weights) text += fmt::format(" {:a}", weight);
  return text;
}

}  // namespace dear
