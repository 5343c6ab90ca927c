#pragma once

#include "studies/paper/published.h"
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dear/platform/cluster/calibration.h"

namespace dear::studies {

// [Note: calibration] Four constants of a cluster (dear/platform/cluster/calibration.h) are fitted to
// published throughputs: those with which a half of the figures comes out best, by least squares of the
// logarithms of modelled over published. The other half is held back and tells how good the model is. The
// halves are fixed by a rule that looks at no figure: numbering jobs and clusters as they stand in the file,
// those whose numbers are both even or both odd are fitted. With two of each that is one diagonal: every job,
// every cluster and every method is in both halves, no job is on the same cluster in both.
//
// Nothing else is fitted. Iterations on one rank are published, layers share them by the device's roofline,
// links between nodes are those of the presets, and collectives take what NCCL would choose ("nccl" of
// cost::ClusterTimesOptions).

// By figure. An order of two methods is one if their figures differ by at least kTie.
inline constexpr double kTie = 0.01;
struct Judgement {
  double median_error = 0;  // |modelled / published − 1|
  double largest_error = 0;
  int pairs = 0;  // of methods for one job on one cluster
  int pairs_in_order = 0;
};

struct Fit {
  Calibration constants;
  std::vector<bool> fitted;      // by figure
  std::vector<double> modelled;  // samples a second, by figure
  Judgement of_fitted, of_held_back, of_all;
};

std::vector<bool> diagonal(const Published& published);
std::vector<bool> other_half(std::vector<bool> fitted);

// Samples a second with these constants, by figure.
std::vector<double> modelled(const Published& published, const Calibration& constants);
// Judges the figures that `counts` names.
Judgement judge(const Published& published, const std::vector<double>& modelled,
                const std::vector<bool>& counts);
// ConfigError when there is no figure to fit to.
Fit fit(const Published& published, const std::vector<bool>& fitted);

// The fitted model and how well it predicts, as Markdown: constants, every figure, and the halves swapped.
std::string report_of(const Published& published, const Fit& fit, const Fit& swapped);

// The held-back figure that a fit misses most. Its policy may choose buckets by the start-up of a collective;
// then another start-up than the fitted one may be what its rule had in mind.
struct Unexplained {
  std::size_t figure = 0;  // of Published::figures
  double error = 0;        // modelled / published − 1
  // Its throughput over that of nothing overlapped, where that is published in the same place.
  std::optional<double> of_serial{};
  int pairs_out_of_order = 0;  // of the held-back half
  int of_this_figure = 0;      // of them
  std::size_t buckets = 0;     // by the fitted constants
  // The shortest launch by which all tensors are one bucket; none where no launch of up to a second does
  // that. With the buckets by this launch, and all else as fitted: modelled / published of every figure of
  // the method on the cluster, by model.
  std::optional<double> merging_launch_seconds{};
  std::vector<std::pair<std::string, double>> merged{};
};
// ConfigError when no figure is held back.
Unexplained least_explained(const Published& published, const Fit& fit);
// Says what it is, and whether one start-up explains every figure of the method.
std::string conclusion_of(const Published& published, const Unexplained& one);

}  // namespace dear::studies
