#pragma once

#include "studies/report/progress.h"
#include "studies/report/study_file.h"
#include "studies/themis/iterations.h"
#include "studies/themis/limits.h"
#include "studies/themis/published.h"
#include "studies/themis/utilisation.h"
#include <cstdint>
#include <vector>

namespace dear::studies::themis {

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
ThemisFindings find(const ThemisOptions& options, const studies::Progress& progress = {});

// The report, pictures, all numbers as JSON: always the same bytes for the same options and figures.
// ConfigError for a published model that there is not.
std::vector<studies::StudyFile> study_of_themis(const PublishedThemis& published,
                                                const ThemisOptions& options,
                                                const studies::Progress& progress = {});

}  // namespace dear::studies::themis
