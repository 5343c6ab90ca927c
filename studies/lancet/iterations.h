#pragma once

#include "studies/report/progress.h"
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/methods/moe/mixtures.h"
#include "dear/workload/zoo/device.h"

// Iterations of models with mixtures of experts by every pass, in virtual time.
namespace dear::studies::lancet {

using methods::moe::find_gate;
using methods::moe::Gate;
using methods::moe::name_of;

// What nobody published and the study has to assume. Each but the first differs from it in one thing.
struct Assumption {
  std::string name;
  std::string says;                // as the end of a sentence: "kernels take twice as long"
  bool half = false;               // parameters, activations and what travels in 16 bits
  bool shortened = false;          // products on matrix units with shortened mantissas, all in 32 bits: TF32
  double pace = 1;                 // of all kernels, as a multiple of the table's
  bool batches_exchanged = false;  // the two models have each other's batches, as in the paper's text
  int first_mixture = 1;           // layer, from 0; every second one from there
};
const std::vector<Assumption>& assumptions();
// Whether it says something of this device: V100 have no TF32, and their batches are the same in text and
// configurations.
bool concerns(const Assumption& assumption, std::string_view device);

// The iteration with the passes of one row of all_passes().
struct PassTime {
  std::string passes;
  double seconds = 0;
  double compute_seconds = 0;
  double exposed_seconds = 0;  // of all communication, while nothing is computed
  int parts = 1;               // the most of a range of the forward, or of the experts
};

struct Iteration {
  std::string model, cluster;
  Gate gate = Gate::in_order;
  int ranks = 0;
  std::string assumption;
  std::int64_t batch = 0;  // sequences on a rank
  double all_to_all_seconds = 0, expert_seconds = 0;
  std::vector<PassTime> passes{};

  [[nodiscard]] bool has(std::string_view name) const;            // whether it was played by these passes
  [[nodiscard]] const PassTime& by(std::string_view name) const;  // ConfigError where it was not
  // How many times as fast both passes are as the better of no pass and experts alone.
  [[nodiscard]] double gain() const;
  [[nodiscard]] double exposed_less(std::string_view than) const;  // 0 to 1, by both passes
};

struct IterationOptions {
  std::vector<std::string> models{"gpt2-s-moe", "gpt2-l-moe"};
  std::vector<std::string> clusters{"p3dn-64", "p4de-64"};
  std::vector<Gate> gates{Gate::in_order, Gate::by_importance};
  std::vector<int> ranks{8, 16, 32, 64};
  // On these alone the assumptions but the first are played, and each pass by itself, which take longest.
  int sampled_ranks = 32;
  std::size_t assumptions = 6;  // of assumptions(): the first ones
  // Multiples of the table's pace of kernels, on the sampled ranks, for the picture of where it pays.
  std::vector<double> paces{0.25, 0.5, 1, 2, 4, 8, 16};
};

// `each_alone`: by the pass "partition" too, which takes as long to choose as both.
Iteration iteration_of(const std::string& model, const std::string& cluster, Gate gate, int ranks,
                       const Assumption& assumption, bool each_alone);
// Clusters, models, gates, ranks, then assumptions that concern the cluster's device.
std::vector<Iteration> iterations_of(const IterationOptions& options, const studies::Progress& progress = {});
// Clusters, models, then paces, with the first gate; the assumption's name is the pace.
std::vector<Iteration> iterations_by_pace(const IterationOptions& options,
                                          const studies::Progress& progress = {});

}  // namespace dear::studies::lancet
