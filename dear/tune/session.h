#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/tune/candidates.h"
#include "dear/tune/trial.h"
#include "dear/tune/tuner.h"
#include "dear/tune/window.h"

// Tuning while training: what the one rank that decides is told, and answers. Pure: no clock, no thread, no
// random number but from a seed, so the same times give the same answers.
namespace dear::tune {

struct SessionOptions {
  std::string method = "bayesian";
  TunerOptions tuner = {.trials = 20};
  WindowOptions baseline{.least_iterations = 2, .most_iterations = 4, .precision = 0.02};
  WindowOptions window;
  // What all trials together may cost beyond as many iterations of the best so far, in iterations of it. A
  // trial that goes beyond is cut short after its second iteration. Stalls do not count, nor does what the
  // start takes, which would have run anyway; changes do, see paid().
  double budget_iterations = 12;
  // The winner is compared with the start again when it is not better by this part and three deviations.
  double near = 0.05;
  // Drift is when the median of so many iterations is off the settled one by this part and by five
  // deviations, and that of the next as many is, too.
  double drift = 0.1;
  int drift_iterations = 10;
  // Iterations between settling and tuning again because of drift: at least so many, and twice as many after
  // each time that changed nothing.
  int rest_iterations = 50;
  // From an earlier run of the same job on the same machines, possibly somewhat wrong: tuning starts at what
  // was best there.
  std::vector<Observation> learned = {};
  double learned_error = 0.02;  // as Prior::error
  double drifted_error = 0.1;   // of what was known before a drift
  // Somebody measures after a drift what the session cannot see, and says by expect() what is to be expected
  // now: nothing is tried before.
  bool told_after_drift = false;
};

// [Note: what a drift leaves] What was observed before is neither dropped nor kept: when the network changes,
// each candidate changes by a factor of its own, but those that were poor for a reason mostly stay so. So the
// expectations of the old model become the prior of the new one, which finds out a common factor and whether
// differences grew, and corrects the rest by measurements. A cache of an earlier run enters in the same way.
// Better than that is a model of what has changed: on half the bandwidth it is the small buckets' turn, which
// no measurement at the old one tells.
class Session {
 public:
  // `start` is the candidate that runs when the first iteration is told. ConfigErrors of Method::make, and
  // for a start or a learned candidate that is not there.
  Session(Candidates candidates, std::size_t start, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // An iteration of current() has taken so long. The candidate that runs from the next iteration on, when it
  // is another one. Seconds that are not finite and above 0 are passed over.
  std::optional<std::size_t> iteration(double seconds);
  // Changing to another candidate took so long, outside of all iterations.
  void paid(double seconds);
  // What is to be expected since the drift, in place of what was known before it: current() may be another
  // candidate afterwards. ConfigError unless a drift was seen of which nothing was told yet, and for a prior
  // that Method::make refuses.
  void expect(const Prior& prior);
  // Whether expect() is waited for.
  [[nodiscard]] bool waits() const { return waits_; }

  [[nodiscard]] std::size_t current() const { return current_; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool settled() const { return state_ == State::settled; }
  [[nodiscard]] const Candidates& candidates() const { return candidates_; }
  [[nodiscard]] const std::vector<Trial>& trials() const { return trials_; }  // all, oldest first
  // What is worth remembering for the next run: medians, since the last drift.
  [[nodiscard]] std::vector<Observation> learned() const;
  // As Tuner::expectations, of the present tuner.
  [[nodiscard]] std::vector<Expectation> expectations() const { return tuner_->expectations(); }
  // What trials and changes have cost since the last drift, in iterations of the best.
  [[nodiscard]] double spent_iterations() const;

 private:
  void begin(const Prior& prior, State state);
  void make_tuner(const Prior& prior);
  void open(std::size_t candidate, State state);
  void close(TrialResult result);
  void after_trial();
  void finish();
  void settle(std::size_t candidate);
  bool watch(double seconds);
  [[nodiscard]] bool over_budget() const;
  [[nodiscard]] std::optional<double> best_seconds() const;

  const Candidates candidates_;
  const SessionOptions options_;
  std::unique_ptr<Tuner> tuner_;
  State state_ = State::baseline;
  std::size_t start_;  // what ran before tuning, or before the drift
  std::size_t current_;
  std::size_t winner_ = 0;
  std::int64_t iterations_ = 0;
  Window window_;
  std::vector<Trial> trials_;
  std::size_t first_trial_ = 0;  // since the last drift
  double paid_seconds_ = 0;      // since then

  std::optional<double> compared_start_seconds_;

  std::optional<double> settled_seconds_;
  double settled_noise_seconds_ = 0;
  bool suspected_ = false;
  bool waits_ = false;
  std::deque<double> recent_;
  std::int64_t settled_at_ = 0;
  std::int64_t rest_iterations_;
};

}  // namespace dear::tune
