#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dear {

// How the samples of a batch of all ranks are shared among ranks that are not equally quick.
struct Balance {
  // By rank, each above 0: a rank gets samples in proportion. Empty: shares follow the measured speeds of
  // ranks, and are equal at first.
  std::vector<double> weights{};
  // Measured shares: one decision counts a rank's median speed over so many steps.
  int window = 8;
  // Shares change where the step is foreseen to be quicker by this factor, at least 1: smaller drifts change
  // nothing.
  double least_gain = 1.05;
  // The steps from a decision to the step that follows it: so many steps ahead may a loader read its batches.
  int ahead = 8;
};

// Shares of a batch by rank, the same on every rank at the same step. For one thread.
class BatchShares {
 public:
  // ConfigError for weights that are not one finite number above 0 for each rank, and for a window below 1, a
  // gain below 1 or a negative `ahead`.
  BatchShares(Balance balance, int ranks);

  // Fractions by rank, for the step that comes next; their sum is 1.
  [[nodiscard]] const std::vector<double>& fractions() const { return fractions_at(steps_); }
  // How many samples of a batch of `samples` each rank has in a step: whole numbers in proportion, by the
  // largest remainders, whose sum is `samples`; at least 1 each where there are that many. Step 0 is the
  // first. ConfigError where the shares of that step are not decided yet: it lies more than `ahead` steps
  // after the next one.
  [[nodiscard]] std::vector<std::int64_t> counts(std::int64_t samples, std::int64_t step) const;
  // The number of steps that have ended.
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  // How often measured shares were changed.
  [[nodiscard]] std::int64_t changes() const { return std::ssize(history_) - 1; }
  [[nodiscard]] const Balance& balance() const { return balance_; }

  // Ends a step, with what all ranks said in it: the samples per second of each, computing, in the step
  // before; 0 where one has not said.
  void end_step(const std::vector<double>& rates);

 private:
  [[nodiscard]] const std::vector<double>& fractions_at(std::int64_t step) const;
  void decide();

  Balance balance_;
  std::vector<std::pair<std::int64_t, std::vector<double>>> history_;  // fractions from a step on, ascending
  std::vector<std::vector<double>> measured_;                          // by rank, since the last decision
  std::int64_t steps_ = 0;
  std::int64_t measures_from_;  // the first step that counts for the next decision
};

// `samples` in whole numbers in proportion to the weights, as BatchShares::counts() has them.
[[nodiscard]] std::vector<std::int64_t> split(std::int64_t samples, const std::vector<double>& weights);
// For comparison between ranks, to the bit.
[[nodiscard]] std::string text_of(const Balance& balance);

}  // namespace dear
