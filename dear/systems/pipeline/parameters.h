#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/systems/pipeline/run.h"

namespace dear::systems::pipeline {

// `tensor` of rank `from`, on all ranks: a copy of its own, with the shape and type that it has there.
torch::Tensor broadcast(const Group& group, const torch::Tensor& tensor, int from);

// The table says which rank has which parameters and buffers of a model that is whole on every rank when it
// is made. Parameters that no operator uses lie with the first stage. Each of several replicas has all of
// them; the first one speaks for all. All ranks call everything but load() together.
class Parameters {
 public:
  // ConfigError for a buffer that an operator changes and that lies on several ranks.
  Parameters(const Job& job, const Group& group);

  // Gives all ranks the values of rank 0, and lets go of what lies on other ranks: it has no element then.
  void begin();

  [[nodiscard]] Tensors own() const;  // parameters of this rank, in the order of the model

  // Gradients from earlier steps of what ranks add up or average are whole already, and are put aside for a
  // step; to be added to its gradients.
  [[nodiscard]] Tensors put_aside() const;
  void add_earlier(const Tensors& earlier) const;
  // Gradients of tied parameters are added up over the ranks of a pipeline in their order, on all of them.
  void add_tied(Wire& wire) const;
  // Trained parameters whose gradients are whole when this stage of this rank has ended its backward passes;
  // with no stage tied ones, when add_tied() returns.
  [[nodiscard]] Tensors whole_after(std::optional<int> stage) const;

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
    std::vector<int> holders{};  // ranks of this replica, ascending
    int last_stage = 0;          // of this rank that uses it, in the order of the schedule
    bool is_parameter = false;
  };
  [[nodiscard]] const std::vector<Named>& all() const { return all_; }  // parameters first, as of the model
  [[nodiscard]] bool has(const Named& one) const;
  // The rank of the first replica that holds it, and speaks for all.
  [[nodiscard]] int speaker(const Named& one) const { return one.holders.front() / replicas_ * replicas_; }

 private:
  [[nodiscard]] bool is_tied(const Named& one) const;
  [[nodiscard]] bool is_together(const Named& one) const;  // this rank has its gradient with others

  const Group group_;
  const int replicas_;
  std::vector<Named> all_;
};

}  // namespace dear::systems::pipeline
