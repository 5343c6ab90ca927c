#pragma once

#include "studies/report/statement.h"
#include "studies/report/study_file.h"
#include "studies/themis/themis.h"
#include <string>
#include <vector>

namespace dear::studies::themis {

// Published statements, and those that follow from the algorithm, beside what was seen.
std::vector<studies::Statement> statements_of(const PublishedThemis& published, const ThemisOptions& options,
                                              const ThemisFindings& findings);
// Published gains of iterations, and the ratio of communication to computation at which they occur.
std::vector<std::string> without_verdict(const PublishedThemis& published, const ThemisFindings& findings);
// README.md.
std::string report_of(const PublishedThemis& published, const ThemisOptions& options,
                      const ThemisFindings& findings);
// results.json: all numbers, by name.
std::string to_json(const ThemisOptions& options, const ThemisFindings& findings);
// use.svg, iterations.svg, sizes.svg.
std::vector<studies::StudyFile> pictures_of(const ThemisOptions& options, const ThemisFindings& findings);

// Rules of verdicts.
inline constexpr double kCloseUtilisation = 0.03;  // of a mean utilisation
inline constexpr double kCloseGain = 0.1;          // of a gain
inline constexpr double kSlower = 1.02;            // times as long as the baseline
inline constexpr double kNearIdeal = 0.05;

}  // namespace dear::studies::themis
