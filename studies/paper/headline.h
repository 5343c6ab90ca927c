#pragma once

#include "studies/paper/published.h"
#include <string>
#include <vector>

namespace dear::studies {

// [Note: the headline] Of PyTorch's DDP one iteration on many ranks is published, and it is longer than the
// calibrated network has it. What may be missing are costs of one constant each. Each is fitted to that one
// figure, predicts the other models of the paper, and says by how much DeAR gains over DDP at most. The
// largest gain that DeAR's paper reports is fitted by nothing. A cost gives it where it lies between the
// largest gain of DeAR with its usual buckets and that with planned ones, for the paper tunes their size.

// One cost, fitted. Gains are of dear-replicated over DDP, the largest of all models: 0.83 is 83 %.
struct FittedCost {
  std::string of;       // what costs: "each buffer that DDP broadcasts before a forward pass"
  double constant = 0;  // seconds; a share of the seconds that a byte takes where `is_share`
  bool is_share = false;
  std::vector<double> seconds{};  // an iteration of DDP, by model of kPaperModels
  double usual_gain = 0;
  double planned_gain = 0;
  std::string where{};  // the model of the planned gain

  // Whether the gain that is reported lies between the two; to a percent, as gains are published.
  [[nodiscard]] bool gives(double reported) const;
};

// The network for which no iteration of DDP is published, but a largest gain.
struct OtherNetwork {
  std::string cluster;
  double reported = 0;
  double same_gain = 0;     // over DDP, if a buffer cost as much there
  double most_seconds = 0;  // that a buffer can cost for the gain to be what is reported; below 0: none
};

struct Headline {
  PublishedIteration figure;
  double reported = 0;              // the largest gain that is published for the figure's network
  std::vector<double> without{};    // seconds of DDP with nothing added, by model
  std::vector<FittedCost> costs{};  // the first is that of buffers, which the calibrated cluster has
  std::vector<OtherNetwork> others{};
};

// Of the first iteration that is published. ConfigError where there is none, where its network has no gain,
// or where a cost cannot be what is missing.
Headline explain(const Published& published);

// Says in a sentence which costs give the reported gain.
std::string conclusion_of(const Headline& headline);
// All of it, as a section in Markdown.
std::string report_of(const Headline& headline);

}  // namespace dear::studies
