#pragma once

#include "studies/paper/published.h"
#include <string>
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

}  // namespace dear::studies
