#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "dear/methods/kfac/plan.h"
#include "dear/schedule/conductor/drive.h"
#include "dear/systems/kfac/curvature.h"
#include "dear/systems/kfac/layers.h"

// Times of one rank, measured in steps of the training: a plan is made of them.
namespace dear::systems::kfac {

struct LayerTimes {
  double forward = 0, backward = 0;            // seconds
  double input_factor = 0, output_factor = 0;  // to compute them
};

// PassTimes measures the passes by the moments at which factors are computed.
class PassTimes {
 public:
  explicit PassTimes(std::size_t layers) : now_(layers), sums_(layers) {}
  // A sum of the layer was added to.
  void used(std::size_t layer, Side side, double begin_seconds, double end_seconds);
  // When the layer was used first in this step; infinite where it was not.
  [[nodiscard]] double first_use(std::size_t layer) const {
    return now_[layer].input.uses > 0 ? now_[layer].input.begin : std::numeric_limits<double>::infinity();
  }
  // Layers are numbered anew: order[i] is the old number of layer i.
  void reorder(const std::vector<std::size_t>& order);
  // The passes of a step are over, in which layers were used in the order of their numbers.
  void end_step();
  [[nodiscard]] std::vector<LayerTimes> means() const;  // over steps

 private:
  struct Moment {
    double begin = 0, end = 0, busy = 0;
    std::int64_t uses = 0;
  };
  struct OfLayer {
    Moment input, output;
  };
  std::vector<OfLayer> now_;
  std::vector<LayerTimes> sums_;
  std::int64_t steps_ = 0;
};

// The median seconds of pieces of work of one kind and size: elements, or the dimension of an inverse.
struct MeasuredWork {
  WorkKind kind;
  std::int64_t size;
  double seconds;
};
[[nodiscard]] std::vector<MeasuredWork> measured_by(const Curvature& curvature);

[[nodiscard]] Job job_of(const std::vector<MatrixLayer>& layers, const std::vector<LayerTimes>& times);
// Where collectives or inverses were not measured, a usual network and processor stand in.
[[nodiscard]] Costs costs_of(int ranks, const std::vector<MeasuredWork>& measured);

}  // namespace dear::systems::kfac
