#pragma once

#include "studies/kfac/findings.h"
#include "studies/kfac/published.h"
#include "studies/report/progress.h"
#include "studies/report/statement.h"
#include "studies/report/study_file.h"
#include <vector>

namespace dear::studies::kfac {

// The study of SPD-KFAC (Shi et al. 2021, arXiv 2107.06533): README.md, pictures, results.json; always the
// same bytes for the same figures. All of it is simulated. ConfigError for a model or device that there is
// not.
std::vector<studies::StudyFile> study_of_kfac(const PublishedKfac& published,
                                              const studies::Progress& progress = {});
// The study of findings that were made before.
std::vector<studies::StudyFile> study_of_kfac(const PublishedKfac& published, const Findings& findings);

// Published statements, and those that follow from the algorithms, beside what was seen.
std::vector<studies::Statement> statements_of(const PublishedKfac& published, const Findings& findings,
                                              const FusionOutcome& fusion,
                                              const std::vector<PlacementOutcome>& placements);

// In how many models each published order of two variants comes out, with each set of costs.
struct Order {
  std::string says;  // "alone slower than bulk"
  int as_published = 0, calibrated = 0, swapped = 0;
};
std::vector<Order> orders_of(const PublishedKfac& published, const Findings& findings);

// How far modelled figures of the half that was not fitted are from the published ones.
struct Distance {
  std::string figure;
  double median = 0, largest = 0;  // |modelled / published - 1|
};
std::vector<Distance> distances_of(const PublishedKfac& published, const Findings& findings);

// Rules of verdicts.
inline constexpr double kCloseRatio = 0.05;  // of a ratio of two iterations
inline constexpr double kTie = 0.005;        // two times that are nearer have no order

}  // namespace dear::studies::kfac
