#pragma once

#include "studies/homomorphic/homomorphic.h"
#include "studies/report/statement.h"
#include <vector>

namespace dear::studies::homomorphic {

// The methods that learn beside dense, as Compression::parse() reads them.
inline constexpr const char* kSketch = "sketch";
inline constexpr const char* kExactSketch = "sketch,exact";
inline constexpr const char* kTopK = "top-k:0.01,ef";
inline constexpr const char* kRandomBlock = "random-block:0.01,ef";

// All that was seen.
struct Findings {
  std::vector<RecoveryRate> recovery;
  std::vector<ExactSums> exact;
  std::vector<FloatError> floats;
  std::vector<SizeAt> sizes;
  double index_border = 0;
  std::vector<UnionAt> unions;
  std::vector<MethodLearned> learned;
  Speeds speeds;

  // ConfigError where it was not studied.
  [[nodiscard]] const MethodLearned& learned_with(const Method& method) const;
  // The speed of a sketch with the codec's own rows for each key, its sums in fp32 or int64 (`exact`).
  [[nodiscard]] const SketchSpeed& speed_of(SketchSpec::Index index, Peeling peeling, int ranks,
                                            double density, bool exact = false) const;
};

// How many times as many gradients a second are added up as dense ones.
double throughput(const HomomorphicOptions& options, const SketchSpeed& speed, int ranks,
                  double bytes_per_second);
// How many times as many iterations a second a recommender makes as with dense gradients.
double iterations(const HomomorphicOptions& options, const RecommenderSpeed& speed, double bytes_per_second);
// Communication of a recommender's iteration: dense, and as a sketch.
studies::Line dense_line_of(const HomomorphicOptions& options, const RecommenderSpeed& speed);
studies::Line sketch_line_of(const HomomorphicOptions& options, const RecommenderSpeed& speed);

// Numbers of the abstract, and those that the rules of verdicts use.
inline constexpr double kPaperThroughput = 6.33;
inline constexpr double kPaperIterations = 3.74;
inline constexpr double kNever = 0.05, kAlways = 0.95;  // shares of groups that come out whole
inline constexpr double kHalf = 0.1;                    // from a half
inline constexpr double kOfTheBound = 0.9;              // that bytes reach
inline constexpr double kThroughputOfTheBound = 0.7;    // at the smallest bandwidth
inline constexpr double kBloomBorder = 0.07;
inline constexpr double kOfTheUnion = 0.02;  // a density is that which chance makes to so large a part
inline constexpr double kFloatError = 1e-5;
inline constexpr double kSameCurve = 1e-4;
inline constexpr int kSameSteps = 200;
inline constexpr double kCloseLoss = 0.02;  // above that of dense

// The largest gain that the abstract states; density and bandwidth decide it.
std::vector<std::string> without_verdict(const HomomorphicOptions& options, const Findings& findings);

std::vector<studies::Statement> judge(const HomomorphicOptions& options, const Findings& findings);

}  // namespace dear::studies::homomorphic
