#pragma once

#include "studies/report/statement.h"
#include "studies/report/study_file.h"
#include "studies/rounds/rounds.h"
#include <string>
#include <vector>

namespace dear::studies::rounds {

// Judge what follows from theory, what was published, and goals, beside what was seen.
std::vector<studies::Statement> statements_on_minima(const MinimaFindings& findings);
std::vector<studies::Statement> statements_on_areas(const AreasFindings& findings);
std::vector<studies::Statement> statements_on_learning(const PublishedRounds& published,
                                                       const std::vector<Learnt>& learnt);

// All that is trained, the first by gradients that are averaged in every step; so many steps each, but for
// those that look at a longer training.
std::vector<Lesson> lessons_of(const PublishedRounds& published, const LearningOptions& options);

// README.md of each folder.
std::string page_of_minima(const MinimaOptions& options, const MinimaFindings& findings);
std::string page_of_areas(const AreasOptions& options, const AreasFindings& findings);
std::string page_of_learning(const PublishedRounds& published, const LearningOptions& options,
                             const std::vector<Learnt>& learnt);
// results.json of each folder, all numbers by name.
std::string to_json(const MinimaFindings& findings);
std::string to_json(const AreasFindings& findings);
std::string to_json(const std::vector<Learnt>& learnt);
// tamuna/reals.svg, gains.svg, owners.svg; coda/auc.svg, drift.svg; diloco/losses.svg, steps.svg.
std::vector<studies::StudyFile> pictures_of(const RoundsFindings& findings);

// How many times fewer reals than gradient descent on the same problem; 0 where it did not arrive.
double fewer_than_descent(const MinimaFindings& findings, const MinimumRun& run);
// Slope of log y against log x, by least squares.
double log_log_slope(const std::vector<std::pair<double, double>>& points);
// Sent bytes until the loss was at most so much, or infinity.
double bytes_until(const Learnt& learnt, double loss);

// Verdicts follow these rules.
inline constexpr double kLocalGain = 45;     // times fewer reals than gradient descent, by local steps alone
inline constexpr double kBothGain = 120;     // with masks, too
inline constexpr double kSameRounds = 0.1;   // rounds of another cohort, in parts
inline constexpr double kRootSlope = 0.55;   // of rounds against kappa, in logarithms
inline constexpr double kOfTheRate = 0.95;   // of the logarithm of the rate
inline constexpr double kStalls = 1e-6;      // an error that does not become smaller
inline constexpr double kZeroSum = 1e-11;    // of control variates
inline constexpr double kSameArea = 1e-3;    // AUC
inline constexpr double kOfThePeriod = 0.9;  // rounds that are saved, in parts of the steps of one
inline constexpr double kDriftLeft = 0.2;    // of CoDA's, by CODASCA
inline constexpr double kSpeedUpSlope = 0.25;       // of noise against clients, beside -1
inline constexpr double kCloseLoss = 0.02;          // nats of a character
inline constexpr double kCloseBytes = 0.05;         // of a published factor
inline constexpr double kOfThePeriodInBytes = 0.5;  // that every-step training sends more

}  // namespace dear::studies::rounds
