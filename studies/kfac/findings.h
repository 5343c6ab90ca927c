#pragma once

#include "studies/kfac/calibration.h"
#include "studies/kfac/outcomes.h"
#include "studies/kfac/published.h"
#include "studies/report/progress.h"
#include <string>
#include <vector>

namespace dear::studies::kfac {

// The results of simulations with one set of costs, in seconds.
struct Modelled {
  std::vector<Outcome> factors_sent;  // by_fusion()
  std::vector<Outcome> inverses;      // by_placement()
  std::vector<Outcome> steps;         // by_step()
  std::vector<Outcome> strategies;    // by_strategy()
};

// An iteration that was given the parts of D-KFAC.
struct Fed {
  std::string strategy;
  dear::methods::kfac::Breakdown parts;
  double seconds = 0;
};

struct ModelFindings {
  std::string model;
  bool fitted = false;  // its figures are among those that costs are calibrated with
  std::size_t factors = 0;
  std::int64_t factor_elements = 0, gradient_elements = 0;
  Modelled as_published;  // with the published costs as they are
  Modelled calibrated;
  Modelled swapped;  // calibrated with the other half
  // d-kfac, mpd-kfac and spd-kfac, given the published parts: passes, factors and inverses of D-KFAC,
  // broadcasts of MPD-KFAC, and the exposed time of factors by the way in which they travel.
  std::vector<Fed> fed;
  double spd_seconds_without_its_own =
      0;  // spd-kfac, given the same but for how long its own factors are exposed
};

struct Findings {
  dear::methods::kfac::Costs calibrated, swapped;
  std::vector<ModelFindings> models;
};
// Passes and factors by the roofline of the published device, on all published models. ConfigError for a
// model or device that there is not.
Findings simulate_models(const PublishedKfac& published, const studies::Progress& progress = {});

// The rule of fusion beside the best fusion, on random layers.
struct FusionOutcome {
  int cases = 0;
  int optimal = 0;   // within a ten-thousandth
  int within_5 = 0;  // percent
  double mean = 0;   // times as long
  double worst = 0;
};
FusionOutcome fusion_on_random_layers(int cases);

// Who inverts, on random jobs: 2 to 25 layers with factors of 64 to 4096, 2 to 64 ranks, costs that differ by
// hundreds of times. Iterations of spd-kfac, beside the faster of all inverses on every rank and inverses
// dealt round robin.
struct PlacementOutcome {
  std::string placement;  // "balanced", "planned"
  int jobs = 0;
  int slower = 0;        // jobs in which its iteration is slower, by more than rounding
  double worst = 0;      // times as long, at most
  double mean = 0;       // geometric
  int phase_slower = 0;  // jobs in which inverses, computed and sent by themselves, end later
  double phase_worst = 0;
};
std::vector<PlacementOutcome> placement_on_random_jobs(int jobs);

}  // namespace dear::studies::kfac
