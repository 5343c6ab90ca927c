#pragma once

#include <cstdint>
#include <vector>

#include "dear/simulated/themis/iterations.h"
#include "dear/simulated/themis/limits.h"
#include "dear/simulated/themis/published.h"
#include "dear/simulated/themis/utilisation.h"
#include "dear/study/progress.h"
#include "dear/study/study_file.h"

namespace dear::simulated::themis {

// Options of the study of Themis (Rashidi et al. 2022, doi:10.1145/3470496.3527382). All of it is
// simulated, at chunk detail.
struct ThemisOptions {
  UtilisationOptions utilisation{};
  IterationOptions iterations{};
  RandomOptions random{};
  OptimumOptions optimum{};
  SizeOptions sizes{.bytes = {}};
  std::vector<std::int64_t> preset_sizes{};
};
// The whole study, which takes less than a minute; one of a few networks and ratios.
ThemisOptions whole_study();
ThemisOptions quick_study();

struct ThemisFindings {
  std::vector<Use> uses;
  std::vector<IterationGain> iterations;
  std::vector<RandomOutcome> random;
  std::vector<OptimumOutcome> optimum;
  std::vector<SizeOutcome> sizes;
  std::vector<PresetOutcome> presets;
};
ThemisFindings find(const ThemisOptions& options, const study::Progress& progress = {});

// The report, pictures, all numbers as JSON: always the same bytes for the same options and figures.
// ConfigError for a published model that there is not.
std::vector<study::StudyFile> study_of_themis(const PublishedThemis& published, const ThemisOptions& options,
                                              const study::Progress& progress = {});

}  // namespace dear::simulated::themis
