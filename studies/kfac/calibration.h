#pragma once

#include "studies/kfac/outcomes.h"
#include "studies/kfac/published.h"
#include <string_view>
#include <vector>

#include "dear/methods/kfac/plan.h"

namespace dear::studies::kfac {

// Whether the figures of a model are those that costs are fitted to, by model.
using Half = std::vector<bool>;
// The fitted half has, of four models in a row, the second and the third; the other half has all others.
Half fitted_half(std::size_t models);
Half other_half(Half half);

// [Note: calibration of K-FAC] The published fits of costs were made of collectives and inverses that run by
// themselves; the published iterations are slower in some parts and faster in others. Seven constants are
// fitted to figures of half of the models, one group after the other:
//   inverses     start and seconds per cube, to the time of all inverses on one rank
//   broadcasts   start and seconds per element, to the inverse phase with inverses dealt round robin
//   all-reduces  start and seconds per element, and how much more slowly a rank computes while something
//                travels (Interference::computation), to the exposed time of factors that travel in bulk, one
//                by one, by threshold, and by the paper's rule
// Balanced placement, step-by-step figures and whole iterations are not looked at, nor is anything of the
// other half.
dear::methods::kfac::Costs calibrate(const PublishedKfac& published, const std::vector<PublishedJob>& jobs,
                                     const Half& fitted);

// `costs` at the pace of one model, as far as its parts are published: inverses and broadcasts as many times
// as slow as make those of D-KFAC and MPD-KFAC, all-reduces and their interference fitted to the exposed time
// of its factors, by these ways to travel. `jobs` has the model with its own passes.
using Ways = std::vector<std::string_view>;
inline const Ways kAllWays = {"bulk", "alone", "threshold", "rule"};
inline const Ways kWaysOfOthers = {"bulk", "alone", "threshold"};  // "rule" is that of SPD-KFAC
dear::methods::kfac::Costs calibrate_to_parts(const PublishedKfac& published,
                                              const std::vector<PublishedJob>& jobs, std::size_t model,
                                              dear::methods::kfac::Costs costs, Ways ways);

// The costs that were published, as they are.
dear::methods::kfac::Costs published_costs(const PublishedKfac& published);

}  // namespace dear::studies::kfac
