#pragma once

#include "studies/kfac/published.h"
#include <string>
#include <string_view>
#include <vector>

#include "dear/methods/kfac/plan.h"
#include "dear/methods/kfac/predict.h"

// Simulated times of one job with K-FAC, by variant.
namespace dear::studies::kfac {

struct Outcome {
  std::string name;  // of the variant
  double seconds = 0;
};
// By name; 0 where there is none.
double seconds_of(const std::vector<Outcome>& outcomes, std::string_view name);

// A job, as its authors ran it: Horovod fuses once more what becomes ready in a cycle, broadcasts follow the
// last inverse, and placement is balanced, where ours plays several.
struct PublishedJob {
  dear::methods::kfac::Job job;
  double cycle_seconds = 0;
  std::int64_t threshold_elements = 0;
};
// The strategy, run so.
dear::methods::kfac::Strategy as_published(const PublishedJob& job, dear::methods::kfac::Strategy strategy);

// The exposed time of factors that travel: after the backward in "bulk", or under the passes "alone", by
// "threshold" (whatever a cycle of Horovod fuses), by the "rule" of the paper, or in "exact" groups that no
// cycle fuses. In bulk it is what their all-reduce takes; for all others it is longer or shorter by as much
// as an iteration is. So it holds what computation loses to communication, too.
std::vector<Outcome> by_fusion(const PublishedJob& job, const dear::methods::kfac::Costs& costs,
                               const std::vector<std::string_view>& names);

// Until all ranks have all inverses: "local", "round-robin", "balanced". Sending follows the last inverse.
std::vector<Outcome> by_placement(const PublishedJob& job, const dear::methods::kfac::Costs& costs);

// An iteration with "none" of them, "pipelining", "balance", or "both".
std::vector<Outcome> by_step(const PublishedJob& job, const dear::methods::kfac::Costs& costs);

// An iteration, by strategy, and spd-kfac with exact fusion: as DeAR orders it, where nothing fuses groups
// once more and an inverse is sent as soon as it is there.
std::vector<Outcome> by_strategy(const dear::methods::kfac::Job& job,
                                 const dear::methods::kfac::Costs& costs);

// Gradients travel in buckets of 25 MiB.
dear::methods::kfac::Prediction predict(const dear::methods::kfac::Job& job,
                                        const dear::methods::kfac::Costs& costs,
                                        const dear::methods::kfac::Strategy& strategy);

std::int64_t elements_of(const std::vector<dear::methods::kfac::Factor>& factors);  // of their triangles

}  // namespace dear::studies::kfac
