#pragma once

#include <memory>

#include "dear/predict/tune/tuner.h"

// The methods, one a file; the table is in methods.cpp.
namespace dear::tune {

std::unique_ptr<Tuner> make_bayesian(const Candidates& candidates, const TunerOptions& options);
std::unique_ptr<Tuner> make_grid(const Candidates& candidates, const TunerOptions& options);

}  // namespace dear::tune
