#pragma once

#include "studies/report/statement.h"
#include "studies/sparse/accuracy.h"
#include "studies/sparse/speed.h"
#include "studies/sparse/stability.h"
#include <string>
#include <vector>

namespace dear::studies::sparse {

// The ratios of the study, and its schemes, as Compression::parse() reads them.
inline constexpr const char* kRatios[] = {"0.01", "0.1"};
inline constexpr const char* kSchemes[] = {"top-k", "block-top-k", "random-k", "random-block"};
inline constexpr const char* kRandomSchemes[] = {"random-k", "random-block"};

// All that was seen.
struct Findings {
  std::vector<MethodAccuracy> accuracies;
  std::vector<StabilityLimit> limits;
  Speeds speeds;

  // ConfigError where it was not studied.
  [[nodiscard]] const MethodAccuracy& accuracy_of(const Method& method,
                                                  const Optimiser& optimiser = {}) const;
  [[nodiscard]] const CodecSpeed& speed_of(const Compression& compression, int ranks) const;
};

// "top-k:0.01,ef" of "top-k", "0.01", ",ef".
Compression compression_of(const std::string& scheme, const std::string& ratio,
                           const std::string& options = "");

// Accuracies are called close that differ by no more than this, task by task: see training::Paired.
inline constexpr double kClose = 0.02;
// A learning rate is called about another where neither is more than so many times the other.
inline constexpr double kAbout = 4;
// A limit is called a law's where it differs by no more than this part of it.
inline constexpr double kOfTheLaw = 1e-3;

// Each statement on sparse communication, judged.
std::vector<studies::Statement> judge(const Findings& findings);

}  // namespace dear::studies::sparse
