#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/systems/pipeline/run.h"

namespace dear::systems::pipeline {

// `tensor` of rank `from`, on all ranks: a copy of its own, with the shape and type that it has there.
torch::Tensor broadcast(const Group& group, const torch::Tensor& tensor, int from);

// The table says which rank has which parameters and buffers of a model that is whole on every rank when it
// is made. Parameters that no operator uses lie on rank 0. All ranks call everything but load() together.
class Parameters {
 public:
  // ConfigError for a buffer that an operator changes and that lies on several ranks.
  Parameters(const Job& job, const Group& group);

  // Gives all ranks the values of rank 0, and lets go of what lies on other ranks: it has no element then.
  void begin();

  [[nodiscard]] Tensors own() const;  // parameters of this rank, in the order of the model

  // Gradients of tied parameters from earlier steps are whole already, and are put aside for a step. After it
  // the gradients of all ranks are added up in the order of ranks, on all of them, and to those.
  [[nodiscard]] Tensors put_aside() const;
  void add_tied(Wire& wire, const Tensors& earlier) const;

  // The norm of the gradients of all ranks, a tied one once, which then are scaled so that it is at most
  // `max_norm`.
  [[nodiscard]] double clip(double max_norm) const;

  using State = std::map<std::string, torch::Tensor>;
  [[nodiscard]] State state() const;    // whole, on every rank
  void load(const State& state) const;  // ConfigError for one that is not of this model

  struct Named {
    std::vector<std::string> names;  // several for one tensor
    torch::Tensor tensor;            // without an element where this rank does not hold it
    SampledTensor what;
    std::vector<int> holders{};  // ranks, ascending
    bool is_parameter = false;
  };
  [[nodiscard]] const std::vector<Named>& all() const { return all_; }  // parameters first, as of the model
  [[nodiscard]] bool has(const Named& one) const;

 private:
  [[nodiscard]] bool is_tied(const Named& one) const;

  const Group group_;
  std::vector<Named> all_;
};

}  // namespace dear::systems::pipeline
