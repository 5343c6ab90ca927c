#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "dear/predict/tune/candidates.h"
#include "dear/predict/tune/trial.h"

namespace dear::tune {

// A tuner says which candidate to measure next. Its answers depend on the candidates, the options and the
// observations alone. One thread at a time may use a tuner.
class Tuner {
 public:
  Tuner() = default;
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;
  virtual ~Tuner() = default;

  // Returns the candidate to measure next, or nothing when no further measurement is worth its time. The
  // answer stays the same until the next observe().
  virtual std::optional<std::size_t> suggest() = 0;
  // Takes a measurement of any candidate, suggested or not. ConfigError for a candidate that does not exist,
  // and for seconds that are not finite and above 0.
  virtual void observe(std::size_t candidate, double seconds) = 0;

  // Returns the observed candidate that is probably the fastest; nothing before the first observation.
  [[nodiscard]] virtual std::optional<std::size_t> best() const = 0;
  // Returns an expectation for every candidate; a tuner without a model returns none.
  [[nodiscard]] virtual std::vector<Expectation> expectations() const { return {}; }
};

// Holds what is known of every candidate before any is measured: from a simulation, from an earlier run, or
// from before the network changed.
struct Prior {
  std::vector<double> seconds;  // by candidate; empty: nothing is known
  // The standard deviation that measurements are expected to have from `seconds`, as a part of them. A factor
  // that all candidates have in common, and an exaggeration that all differences have in common, are no part
  // of it: the tuner learns both.
  double error = 0.05;
};

struct TunerOptions {
  int trials = 10;  // at most so many suggestions
  std::uint64_t seed = 1;
  Prior prior;  // only "bayesian" uses it
};

// A method of tuning.
struct Method {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view source;   // paper or system
  // Makes a tuner. The candidates must outlive it. ConfigError for candidates that validate() or the method
  // refuses, for less than one trial, and for a prior of another size or with seconds that are not above 0.
  std::unique_ptr<Tuner> (*make)(const Candidates& candidates, const TunerOptions& options);
};

const std::vector<Method>& methods();              // the table of all methods
const Method& find_method(std::string_view name);  // ConfigError that lists the methods

}  // namespace dear::tune
