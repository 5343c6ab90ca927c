#pragma once

#include "studies/fusionllm/fusionllm.h"
#include "studies/report/statement.h"
#include "studies/report/study_file.h"
#include <string>
#include <vector>

namespace dear::studies::fusionllm {

// Judges published statements, goals, and those that follow from the algorithm, beside what was seen. A
// statement that holds under some assumptions and not under others is not comparable.
std::vector<studies::Statement> statements_of(const PublishedFusionLlm& published,
                                              const FusionLlmFindings& findings);
// Writes README.md.
std::string report_of(const PublishedFusionLlm& published, const FusionLlmOptions& options,
                      const FusionLlmFindings& findings);
// Writes results.json, all numbers by name.
std::string to_json(const PublishedFusionLlm& published, const FusionLlmFindings& findings);
// Draws bandwidths.svg, topologies.svg, schedules.svg and losses.svg.
std::vector<studies::StudyFile> pictures_of(const PublishedFusionLlm& published,
                                            const FusionLlmFindings& findings);

// FusionLLM is compared with this plan.
struct Rival {
  PlanMethod method;
  CompressionRule rule;
  [[nodiscard]] std::string name() const;  // "equal-number, top-k"
};
const std::vector<Rival>& rivals();

// Returns by seed how many times as long the plan of a rival takes as OP-Fence with AdaTopK, where both could
// be made.
std::vector<double> speed_ups(const Iterations& iterations, const std::string& setting,
                              const std::string& model, const Rival& rival);
// Returns the mean over seeds of the least of these, of all rivals; 0 where there is none.
double over_the_best(const Iterations& iterations, const std::string& setting, const std::string& model);
double geometric_mean(const std::vector<double>& values);  // 0 of none

std::string figure_text(double figure);  // "0.271", "25.8", "1140"

// Verdicts follow these rules.
inline constexpr double kCloseSpeedUp = 0.1;                       // of a published speed-up
inline constexpr double kNearlyAsFast = 0.9;                       // AdaTopK beside uniform top-k
inline constexpr double kMoreElements = 2;                         // likewise
inline constexpr double kCloseForm = 0.2;                          // the closed form beside what is played
inline constexpr double kMildHeterogeneity = 4, kMildGain = 1.45;  // links inside and between sites
inline constexpr double kGreatHeterogeneity = 50, kGreatGain = 5;
inline constexpr double kHalf = 0.5;        // of the loss that uniform top-k costs
inline constexpr double kConverges = 0.05;  // nats above the loss without compression
inline constexpr double kLearns = 1.15;     // nats: half the loss of a guess among ten classes

}  // namespace dear::studies::fusionllm
