#pragma once

#include <memory>
#include <vector>

#include "dear/predict/tune/tuner.h"

// Ways to tune that DeAR does not offer, for comparison with those that it does (tune::methods()).
namespace dear::bench {

std::unique_ptr<tune::Tuner> make_golden_section(const tune::Candidates& candidates,
                                                 const tune::TunerOptions& options);
std::unique_ptr<tune::Tuner> make_random(const tune::Candidates& candidates,
                                         const tune::TunerOptions& options);
std::unique_ptr<tune::Tuner> make_reference(const tune::Candidates& candidates,
                                            const tune::TunerOptions& options);

const std::vector<tune::Method>& rivals();

}  // namespace dear::bench
