#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "dear/predict/tune/candidates.h"
#include "dear/predict/tune/tuner.h"

namespace dear::tune {

// The base of every tuner keeps the observations and the number of suggestions that are left. choose() makes
// a suggestion; it counts when it is observed.
class ObservingTuner : public Tuner {
 public:
  // ConfigErrors of Method::make.
  ObservingTuner(const Candidates& candidates, const TunerOptions& options);

  std::optional<std::size_t> suggest() final;
  void observe(std::size_t candidate, double seconds) final;
  // Returns the candidate with the lowest median; of several the one that was observed first.
  [[nodiscard]] std::optional<std::size_t> best() const override;

 protected:
  // Returns the next suggestion; called while trials are left.
  virtual std::optional<std::size_t> choose() = 0;
  virtual void learn() {}  // called after every observation

  [[nodiscard]] const Candidates& candidates() const { return candidates_; }
  [[nodiscard]] const std::vector<Observation>& observations() const { return observations_; }
  [[nodiscard]] std::size_t times_observed(std::size_t candidate) const;
  [[nodiscard]] int trials_left() const { return trials_left_; }

 private:
  const Candidates& candidates_;
  std::vector<Observation> observations_;
  int trials_left_;
  bool chosen_ = false;  // whether choose() made `suggestion_` since the last observation
  std::optional<std::size_t> suggestion_;
};

// Suggests the candidates of a list that is fixed beforehand, without those that were observed already.
class ListedTuner : public ObservingTuner {
 protected:
  using ObservingTuner::ObservingTuner;
  void set_order(std::vector<std::size_t> order) { order_ = std::move(order); }

 private:
  std::optional<std::size_t> choose() final;

  std::vector<std::size_t> order_;
  std::size_t next_ = 0;
};

// Returns the candidates nearest to these positions, each for one position alone, in the order of the
// positions; fewer when there are not so many.
std::vector<std::size_t> nearest_candidates(const Candidates& candidates,
                                            const std::vector<std::vector<double>>& positions);

double median(std::vector<double> values);  // of at least one

}  // namespace dear::tune
