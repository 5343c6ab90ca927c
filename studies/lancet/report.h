#pragma once

#include "studies/lancet/lancet.h"
#include "studies/report/statement.h"
#include "studies/report/study_file.h"
#include <string>
#include <vector>

namespace dear::studies::lancet {

// Published statements, and those that follow from the algorithm, beside what was seen. What holds under some
// assumptions and not under others is undecided.
std::vector<studies::Statement> statements_of(const PublishedLancet& published,
                                              const LancetFindings& findings);
// Gains at the best pace of kernels, and published figures that disagree with one another.
std::vector<std::string> without_verdict(const PublishedLancet& published, const LancetFindings& findings);
// README.md.
std::string report_of(const PublishedLancet& published, const LancetOptions& options,
                      const LancetFindings& findings);
// results.json: all numbers, by name.
std::string to_json(const LancetFindings& findings);
// gains.svg, passes.svg, paces.svg.
std::vector<studies::StudyFile> pictures_of(const PublishedLancet& published, const LancetOptions& options,
                                            const LancetFindings& findings);

// Rules of verdicts.
inline constexpr double kCloseGain = 0.05;    // of a gain
inline constexpr double kCloseExposed = 0.1;  // of a part of exposed communication
inline constexpr double kAlike = 0.05;        // of an iteration
inline constexpr double kNoLess = 0.005;      // of an iteration: two that are nearer have no order
inline constexpr double kNearOptimum = 0.8;   // of what the optimum hides

}  // namespace dear::studies::lancet
