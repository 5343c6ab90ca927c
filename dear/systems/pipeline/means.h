#pragma once

#include <optional>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/systems/pipeline/parameters.h"

namespace dear::systems::pipeline {

// Means of gradients over the replicas of this rank's stages. Those of a stage travel, in one all-reduce for
// each type of element, while the rank computes other stages. Alike in bits on all replicas.
class Means {
 public:
  // `replicas` has one rank of each pipeline, in their order, which makes this together with the others.
  // ConfigError on all of them for a parameter whose type no collective carries.
  Means(const Parameters& parameters, const Job& job, const Group& replicas);

  // The gradients of this stage, or with no stage of tied parameters, are computed. In one order on all
  // replicas.
  void start(std::optional<int> stage);
  // Waits for all that was started. A parameter that has a gradient on no replica has none afterwards.
  void finish();

 private:
  struct Bucket {
    std::optional<int> stage;
    Tensors parameters;
    Group group;
    View view;  // gradients, then for each whether it is there
    std::optional<Pending> pending{};
    [[nodiscard]] Tensors parts() const;  // of the buffer, by parameter; then the flags
  };
  std::vector<Bucket> buckets_;
};

}  // namespace dear::systems::pipeline
