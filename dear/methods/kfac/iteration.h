#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/methods/kfac/plan.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/graph/graph.h"

namespace dear::methods::kfac {

// The work of a step of an iteration with K-FAC.
enum class WorkKind : std::uint8_t {
  forward,           // of layer `index`
  backward,          // of layer `index`
  commit,            // step() is called: gradients are final
  compute_factor,    // factor `index`, from this rank's samples
  reduce_factors,    // group `index` of the plan, to all ranks or to its owner
  reduce_gradients,  // bucket `index`
  invert,            // factor `index`, on its owner, or on every rank
  broadcast,         // the inverse of factor `index`, from its owner
  precondition,      // the gradient of layer `index`
  update             // of all parameters
};
struct Work {
  WorkKind kind = WorkKind::commit;
  std::uint32_t index = 0;
  [[nodiscard]] bool communicates() const {
    return kind == WorkKind::reduce_factors || kind == WorkKind::reduce_gradients ||
           kind == WorkKind::broadcast;
  }
  friend bool operator==(const Work&, const Work&) = default;
};
std::string name_of(const Work& work);  // "inverse of factor 3"

// All steps of an iteration, on a compute and a network lane, and their order: a graph like that of SGD
// (schedule/), with other work.
//
// A before the forward of its layer, G after the backward; a group of factors travels after its last factor,
// or after the whole backward (Travel); an inverse follows the reduction of its factor; a broadcast the
// inverse; a layer's preconditioning both its inverses and its gradients; the update all of them. Gradients
// are all-reduced by bucket, each after the backward of its last layer. A factor is not computed anew before
// its last sums are there and inverted.
struct Iteration {
  Graph graph;
  std::vector<Work> work;  // by step
  LaneId compute = 0, network = 0;
  StepId commit = 0;
};
// ConfigError as check().
Iteration make_iteration(const Job& job, const Grouping& grouping, const Plan& plan,
                         const Intervals& intervals = {});

}  // namespace dear::methods::kfac
