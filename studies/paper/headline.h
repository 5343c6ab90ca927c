#pragma once

#include "studies/paper/published.h"
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dear::studies {

// [Note: the headline] Of PyTorch's DDP one iteration on many ranks is published, and it is longer than the
// calibrated network has it. What may be missing are costs of one constant each. Each is fitted to that one
// figure, predicts the other models of the paper, and says by how much DeAR gains over DDP at most. The
// largest gain that DeAR's paper reports is fitted by nothing. A cost gives it where it lies between the
// largest gain of DeAR with its usual buckets and that with planned ones, for the paper tunes their size.

// One cost, fitted. Gains are of dear-replicated over DDP, the largest of all models: 0.83 is 83 %.
struct FittedCost {
  std::string of;  // what costs: "each buffer that DDP broadcasts before a forward pass"
  // Seconds; a share of the seconds that a byte takes where `is_share`. None where no constant makes of the
  // figure's model what was published, such as that of buffers for a model without any: then the rest is not
  // told.
  std::optional<double> constant{};
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

// Names, of the rivals that the paper compares DeAR with, with their usual settings, the one that is the
// fastest on the most models, on the figure's network as it is calibrated.
struct FastestRival {
  std::string policy;
  int models = 0;  // on which it is the fastest
  // Tells of each published throughput of it on this network: the model, and modelled over published.
  std::vector<std::pair<std::string, double>> too_fast_by{};
};

struct Headline {
  PublishedIteration figure;
  double reported = 0;                 // the largest gain that is published for the figure's network
  double figure_seconds = 0;           // of DDP with nothing added, of the figure's model
  std::vector<double> without{};       // likewise, by model of kPaperModels
  std::vector<FittedCost> costs{};     // the first is that of buffers, which the calibrated cluster has
  std::vector<OtherNetwork> others{};  // none where no buffer explains the figure
  FastestRival fastest{};
};

// Explains the one iteration that is published. ConfigError where there is none or more than one, where its
// network has no gain, or where the model is slower than what was published with nothing added.
Headline explain(const Published& published);

// Says in a sentence which costs give the reported gain.
std::string conclusion_of(const Headline& headline);
// Says whether the cost of a buffer can be as large on the other network; `seconds` is that of the figure's.
std::string conclusion_of(const OtherNetwork& other, const std::string& figure_cluster, double seconds);
// Says which rival is the fastest, and whether the model has it too fast for the gain over it to be told.
std::string conclusion_of(const FastestRival& fastest, const std::string& cluster);
// All of it, as a section in Markdown.
std::string report_of(const Headline& headline);

}  // namespace dear::studies
