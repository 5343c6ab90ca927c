#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "dear/tune/candidates.h"
#include "dear/tune/trial.h"

namespace dear::tune {

// Says what to try next. Not for several threads at once. The same answers for the same observations.
class Tuner {
 public:
  Tuner() = default;
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;
  virtual ~Tuner() = default;

  // The candidate to measure next; nothing when there is nothing left to learn that would be worth it. The
  // same until something is observed.
  virtual std::optional<std::size_t> suggest() = 0;
  // What was measured, of the one suggested or of any other. ConfigError for a candidate that is not there,
  // and for seconds that are not finite and above 0.
  virtual void observe(std::size_t candidate, double seconds) = 0;

  // Of those observed, the one that is probably the fastest; nothing before the first.
  [[nodiscard]] virtual std::optional<std::size_t> best() const = 0;
  // Of every candidate; empty from a tuner that has no model.
  [[nodiscard]] virtual std::vector<Expectation> expectations() const { return {}; }
};

// What is known before anything is measured, of every candidate: from a simulation, from an earlier run, from
// before the network changed.
struct Prior {
  std::vector<double> seconds;  // by candidate; empty: nothing is known
  // How far measurements are expected to deviate, as a part of the seconds, beyond a factor that is common to
  // all and beyond exaggerating all differences alike: both of these are found out.
  double error = 0.05;
};

struct TunerOptions {
  int trials = 10;  // at most so many suggestions
  std::uint64_t seed = 1;
  Prior prior;  // only "bayesian" uses it
};

// A way to tune.
struct Method {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view source;   // paper or system
  // The candidates outlive the tuner. ConfigError for candidates that are none (validate), that the method
  // cannot deal with, for less than one trial, and for a prior of another size or that is not above 0.
  std::unique_ptr<Tuner> (*make)(const Candidates& candidates, const TunerOptions& options);
};

const std::vector<Method>& methods();              // the one table
const Method& find_method(std::string_view name);  // ConfigError naming those there are

}  // namespace dear::tune
