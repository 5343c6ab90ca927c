#pragma once

#include <string>
#include <vector>

#include "dear/simulated/themis/themis.h"
#include "dear/study/statement.h"
#include "dear/study/study_file.h"

namespace dear::simulated::themis {

// Published statements, and those that follow from the algorithm, beside what was seen.
std::vector<study::Statement> statements_of(const PublishedThemis& published, const ThemisOptions& options,
                                            const ThemisFindings& findings);
// Published gains of iterations, and the ratio of communication to computation at which they occur.
std::vector<std::string> without_verdict(const PublishedThemis& published, const ThemisFindings& findings);
// README.md.
std::string report_of(const PublishedThemis& published, const ThemisOptions& options,
                      const ThemisFindings& findings);
// results.json: all numbers, by name.
std::string to_json(const ThemisOptions& options, const ThemisFindings& findings);
// use.svg, iterations.svg, sizes.svg.
std::vector<study::StudyFile> pictures_of(const ThemisOptions& options, const ThemisFindings& findings);

// Rules of verdicts.
inline constexpr double kCloseUtilisation = 0.03;  // of a mean utilisation
inline constexpr double kCloseGain = 0.1;          // of a gain
inline constexpr double kSlower = 1.02;            // times as long as the baseline
inline constexpr double kNearIdeal = 0.05;

}  // namespace dear::simulated::themis
