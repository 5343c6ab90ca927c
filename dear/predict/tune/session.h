#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/predict/tune/candidates.h"
#include "dear/predict/tune/trial.h"
#include "dear/predict/tune/tuner.h"
#include "dear/predict/tune/window.h"

// The session of the rank that decides while a job trains. A session has no clock and no thread, and its
// random numbers come from a seed: the same times give the same answers.
namespace dear::tune {

struct SessionOptions {
  std::string method = "bayesian";
  TunerOptions tuner = {.trials = 20};
  WindowOptions baseline{.least_iterations = 2, .most_iterations = 4, .precision = 0.02};
  WindowOptions window;
  // The time that all trials together may take beyond that of as many iterations of the best candidate so
  // far, in iterations of it. A trial that goes beyond is cut short after its second iteration. Changes count
  // (see paid()); stalls do not, nor do iterations of the start, which would have run anyway.
  double budget_iterations = 12;
  // A winner that is not better than the start by this part and by three deviations is measured beside it.
  double near = 0.05;
  // A drift: the median of so many iterations, and that of as many after them, are off the converged median
  // by this part and by five deviations.
  double drift = 0.1;
  int drift_iterations = 10;
  // The fewest iterations between settling and tuning again after a drift. The number doubles each time that
  // tuning has changed nothing.
  int rest_iterations = 50;
  // Measurements of an earlier run of the same job on the same machines, possibly somewhat wrong. Tuning
  // starts with the best of them.
  std::vector<Observation> learned = {};
  double learned_error = 0.02;  // Prior::error of `learned`
  double drifted_error = 0.1;   // Prior::error of expectations from before a drift
  // After a drift the caller measures what the session cannot see, and calls expect(). The session tries
  // nothing before that.
  bool told_after_drift = false;
};

// [Note: what a drift leaves] Observations from before a drift are neither dropped nor kept. When the network
// changes, the time of each candidate changes by a factor of its own, but most poor candidates stay poor. So
// the expectations of the old model become the prior of the new model, which learns a common factor and
// whether differences grew, and corrects the rest by measurements. A cache of an earlier run enters in the
// same way. A model of the change itself is better: small buckets are the best at half the bandwidth, and no
// measurement at the old bandwidth says so.
class Session {
 public:
  // `start` is the candidate that runs in the first iteration. Throws the ConfigErrors of Method::make, and
  // one for a start or a learned candidate that does not exist.
  Session(Candidates candidates, std::size_t start, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Takes the time of an iteration of current(). Returns the candidate that runs from the next iteration on
  // when it is another one. Seconds that are not finite and above 0 are ignored.
  std::optional<std::size_t> iteration(double seconds);
  // Takes the time that a change to another candidate took, outside of all iterations.
  void paid(double seconds);
  // Takes the prior since the drift, in place of the expectations from before it. current() may be another
  // candidate afterwards. ConfigError unless waits(), and for a prior that Method::make refuses.
  void expect(const Prior& prior);
  // Whether the session waits for expect().
  [[nodiscard]] bool waits() const { return waits_; }

  [[nodiscard]] std::size_t current() const { return current_; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool converged() const { return state_ == State::converged; }
  [[nodiscard]] const Candidates& candidates() const { return candidates_; }
  [[nodiscard]] const std::vector<Trial>& trials() const { return trials_; }  // all, oldest first
  // Returns the median of each measured candidate since the last drift, for the next run.
  [[nodiscard]] std::vector<Observation> learned() const;
  // Returns Tuner::expectations() of the present tuner.
  [[nodiscard]] std::vector<Expectation> expectations() const { return tuner_->expectations(); }
  // Returns what trials and changes have cost since the last drift, in iterations of the best candidate.
  [[nodiscard]] double spent_iterations() const;

 private:
  void begin(const Prior& prior, State state);
  void make_tuner(const Prior& prior);
  void open(std::size_t candidate, State state);
  void close(TrialResult result);
  void after_trial();
  void finish();
  void converge(std::size_t candidate);
  bool watch(double seconds);
  [[nodiscard]] bool over_budget() const;
  [[nodiscard]] std::optional<double> best_seconds() const;

  const Candidates candidates_;
  const SessionOptions options_;
  std::unique_ptr<Tuner> tuner_;
  State state_ = State::baseline;
  std::size_t start_;  // the candidate that ran before tuning, or before the drift
  std::size_t current_;
  std::size_t winner_ = 0;
  std::int64_t iterations_ = 0;
  Window window_;
  std::vector<Trial> trials_;
  std::size_t first_trial_ = 0;  // the first one since the last drift
  double paid_seconds_ = 0;      // for changes since the last drift

  std::optional<double> compared_start_seconds_;

  std::optional<double> converged_seconds_;
  double converged_noise_seconds_ = 0;
  bool suspected_ = false;
  bool waits_ = false;
  std::deque<double> recent_;
  std::int64_t converged_at_ = 0;
  std::int64_t rest_iterations_;
};

}  // namespace dear::tune
