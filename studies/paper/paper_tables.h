#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "dear/tools/cases/cases.h"

namespace dear::studies {

inline constexpr std::array kPaperRanks = {16, 32, 64};
inline constexpr std::array kPaperModels = {"resnet50", "densenet201", "inception-v4", "bert-base",
                                            "bert-large"};

// With which the paper compares itself.
inline constexpr std::array kComparedInThePaper = {"wfbp", "mg-wfbp", "horovod", "ddp", "bytescheduler"};

// The largest gain over a rival, and of which model.
struct RivalGain {
  std::string rival;
  std::string model;
  double gain = 0;  // 0.83 is 83 %
};
// Over which rivals the gain is as large as is reported, in sentences. `over_fastest` is the largest gain
// over the rival that is the fastest of all on a model.
std::string verdict_of(const std::vector<RivalGain>& gains, double over_fastest, double reported);

// The five models of DeAR's paper on one cluster with 16, 32 and 64 ranks, by every policy with its usual
// settings, and by some with planned borders; collectives by one algorithm of cost::ClusterTimesOptions. All
// tables are Markdown.
class PaperTables {
 public:
  PaperTables(const std::string& cluster, const std::string& algorithm);
  // Cases point to the scenarios.
  PaperTables(const PaperTables&) = delete;
  PaperTables& operator=(const PaperTables&) = delete;

  [[nodiscard]] const std::vector<cases::Case>& cases() const { return cases_; }
  // Milliseconds an iteration and, in brackets, bounds.
  [[nodiscard]] std::string times(int ranks) const;
  // Where the milliseconds beyond computation go, on the most ranks.
  [[nodiscard]] std::string breakdowns() const;
  // How much faster DeAR with planned buckets is than each of those that the paper compares it with, on the
  // most ranks, and where that comes from. `reported` is the largest gain that the paper claims, 0.83 for 83
  // %.
  [[nodiscard]] std::string gains(double reported) const;

 private:
  [[nodiscard]] const cases::Case& find(std::string_view model, int ranks, std::string_view policy,
                                        std::string_view fusion = "usual") const;

  std::vector<cases::Scenario> scenarios_;
  cases::CaseOptions options_;
  std::vector<cases::Case> cases_;
};

}  // namespace dear::studies
