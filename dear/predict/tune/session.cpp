#include "dear/predict/tune/session.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/predict/tune/observations.h"

namespace dear::tune {
namespace {

constexpr double kDeviations = 3;       // two measurements differ when they are so many deviations apart
constexpr double kDriftDeviations = 5;  // noise does not move a median by so many deviations
constexpr std::int64_t kMostRest = 1 << 14;

}  // namespace

std::string_view name_of(State state) {
  constexpr std::array<std::string_view, 5> kNames{"baseline", "trials", "comparing", "converged", "drifted"};
  return kNames.at(static_cast<std::size_t>(state));
}

std::string_view name_of(TrialResult result) {
  constexpr std::array<std::string_view, 4> kNames{"measured", "hopeless", "budget", "compared"};
  return kNames.at(static_cast<std::size_t>(result));
}

Session::Session(Candidates candidates, std::size_t start, SessionOptions options)
    : candidates_(std::move(candidates)),
      options_(std::move(options)),
      start_(start),
      current_(start),
      rest_iterations_(options_.rest_iterations) {
  if (start >= candidates_.size())
    throw ConfigError(
        fmt::format("tuning cannot start at candidate {}: there are {}", start, candidates_.size()));
  Prior prior = options_.tuner.prior;
  if (!options_.learned.empty()) {
    const auto earlier = find_method(options_.method).make(candidates_, options_.tuner);
    for (const Observation& observation : options_.learned)
      earlier->observe(observation.candidate, observation.seconds);
    if (const std::vector<Expectation> all = earlier->expectations(); !all.empty()) {
      prior = {.seconds = {}, .error = options_.learned_error};
      for (const Expectation& one : all) prior.seconds.push_back(one.seconds);
    }
  }
  begin(prior, State::baseline);
}

Session::~Session() = default;

void Session::make_tuner(const Prior& prior) {
  TunerOptions options = options_.tuner;
  options.prior = prior;
  tuner_ = find_method(options_.method).make(candidates_, options);
}

void Session::begin(const Prior& prior, State state) {
  make_tuner(prior);
  first_trial_ = trials_.size();
  paid_seconds_ = 0;
  start_ = current_;
  compared_start_seconds_.reset();
  open(current_, state);
}

void Session::open(std::size_t candidate, State state) {
  const bool first = state == State::baseline || state == State::drifted;
  WindowOptions options = first ? options_.baseline : options_.window;
  if (state == State::comparing) options.most_iterations *= 2;
  // The candidate stays the same, so no iteration warms up.
  if (candidate == current_ && !first) options.warm_up_iterations = 0;
  window_ = Window(options, state == State::trials ? best_seconds() : std::nullopt);
  current_ = candidate;
  state_ = state;
}

std::optional<std::size_t> Session::iteration(double seconds) {
  if (!std::isfinite(seconds) || !(seconds > 0)) return std::nullopt;
  ++iterations_;
  const std::size_t before = current_;
  if (state_ == State::converged) {
    if (watch(seconds)) {
      Prior prior = options_.tuner.prior;
      if (const std::vector<Expectation> all = tuner_->expectations(); !all.empty()) {
        prior = {.seconds = {}, .error = options_.drifted_error};
        for (const Expectation& one : all) prior.seconds.push_back(one.seconds);
      }
      begin(prior, State::drifted);
      waits_ = options_.told_after_drift;
    }
    return std::nullopt;
  }
  const Window::State state = window_.add(seconds);
  if (waits_) return std::nullopt;
  if (state == Window::State::hopeless) {
    close(TrialResult::hopeless);
  } else if (state_ == State::trials && over_budget()) {
    close(TrialResult::budget);
  } else if (state == Window::State::enough) {
    close(state_ == State::comparing ? TrialResult::compared : TrialResult::measured);
  }
  return current_ == before ? std::nullopt : std::optional(current_);
}

void Session::expect(const Prior& prior) {
  if (!waits_) throw ConfigError("nothing has drifted: what is to be expected is told by SessionOptions");
  make_tuner(prior);
  waits_ = false;
  if (window_.state() == Window::State::enough) close(TrialResult::measured);
}

void Session::paid(double seconds) {
  if (std::isfinite(seconds) && seconds > 0) paid_seconds_ += seconds;
}

void Session::close(TrialResult result) {
  trials_.push_back({.candidate = current_,
                     .seconds = window_.seconds(),
                     .deviation_seconds = window_.deviation_seconds(),
                     .iterations = window_.iterations(),
                     .at_iteration = iterations_ - window_.iterations(),
                     .state = state_,
                     .result = result});
  if (state_ != State::comparing) {
    tuner_->observe(current_, window_.seconds());
    after_trial();
    return;
  }
  if (!compared_start_seconds_) {
    compared_start_seconds_ = window_.seconds();
    open(winner_, State::comparing);
  } else {
    converge(window_.seconds() <= *compared_start_seconds_ ? winner_ : start_);
  }
}

void Session::after_trial() {
  const std::optional<std::size_t> next = over_budget() ? std::nullopt : tuner_->suggest();
  if (next) {
    open(*next, State::trials);
  } else {
    finish();
  }
}

// A winner that is not faster than the start when both are measured side by side does not replace it.
void Session::finish() {
  winner_ = *tuner_->best();
  if (winner_ == start_) {
    converge(start_);
    return;
  }
  const Trial& of_start = trials_[first_trial_];
  double gap = of_start.seconds;
  double deviation = 0;
  for (std::size_t i = first_trial_; i < trials_.size(); ++i) {
    if (trials_[i].candidate != winner_) continue;
    // The worst measurement of the winner counts, as its best one may be luck.
    gap = std::min(gap, of_start.seconds - trials_[i].seconds);
    deviation = std::max(deviation, trials_[i].deviation_seconds);
  }
  if (gap > options_.near * of_start.seconds &&
      gap > kDeviations * std::hypot(deviation, of_start.deviation_seconds)) {
    converge(winner_);
  } else {
    open(start_, State::comparing);
  }
}

void Session::converge(std::size_t candidate) {
  const bool moved = candidate != start_;
  rest_iterations_ = moved ? options_.rest_iterations : std::min(2 * rest_iterations_, kMostRest);
  current_ = candidate;
  state_ = State::converged;
  converged_at_ = iterations_;
  converged_seconds_.reset();
  suspected_ = false;
  recent_.clear();
}

// Returns whether the winner has drifted. The first iterations after settling say what is usual. The
// measurements that made it the winner do not: a winner by measurement is on average slower than it was
// measured. Over thousands of iterations noise makes every median once, so as many iterations again confirm a
// suspicion.
bool Session::watch(double seconds) {
  const int wanted = converged_seconds_ ? options_.drift_iterations : 2 * options_.drift_iterations;
  if (iterations_ <= converged_at_ + options_.window.warm_up_iterations) return false;
  recent_.push_back(seconds);
  if (static_cast<int>(recent_.size()) < wanted) return false;
  Window window({.warm_up_iterations = 0, .least_iterations = wanted, .most_iterations = wanted});
  for (const double recent : recent_) window.add(recent);
  if (!converged_seconds_) {
    converged_seconds_ = window.seconds();
    converged_noise_seconds_ = window.noise_seconds();
    recent_.clear();
    return false;
  }
  recent_.pop_front();
  if (iterations_ - converged_at_ < rest_iterations_) return false;
  // The deviation of the difference of two medians, one of them of twice as many iterations.
  const double deviation = kErrorOfMedian * std::max(window.noise_seconds(), converged_noise_seconds_) *
                           std::sqrt(1.5 / static_cast<double>(wanted));
  const double away = std::abs(window.seconds() - *converged_seconds_);
  if (away <= options_.drift * *converged_seconds_ || away <= kDriftDeviations * deviation) {
    suspected_ = false;
    return false;
  }
  if (suspected_) return true;
  suspected_ = true;
  recent_.clear();
  return false;
}

std::optional<double> Session::best_seconds() const {
  std::optional<double> least;
  for (const Observation& observation : learned())
    if (!least || observation.seconds < *least) least = observation.seconds;
  return least;
}

double Session::spent_iterations() const {
  const std::optional<double> best = best_seconds();
  if (!best) return 0;
  double spent = paid_seconds_ / *best;
  for (std::size_t i = first_trial_; i < trials_.size(); ++i)
    if (trials_[i].state == State::trials)
      spent += trials_[i].iterations * std::max(0.0, trials_[i].seconds / *best - 1);
  // A single iteration may be a stall; the quicker one of two is none.
  if (state_ == State::trials && window_.iterations() >= 2)
    spent += window_.iterations() * std::max(0.0, window_.least_seconds() / *best - 1);
  return spent;
}

bool Session::over_budget() const { return spent_iterations() > options_.budget_iterations; }

std::vector<Observation> Session::learned() const {
  std::map<std::size_t, std::vector<double>> seconds;
  for (std::size_t i = first_trial_; i < trials_.size(); ++i)
    seconds[trials_[i].candidate].push_back(trials_[i].seconds);
  std::vector<Observation> all;
  for (auto& [candidate, measured] : seconds)
    all.push_back({.candidate = candidate, .seconds = median(std::move(measured))});
  return all;
}

}  // namespace dear::tune
