#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/train/optim/optimizer.h"

namespace dear::optim {

using TensorSet = std::unordered_set<const c10::TensorImpl*>;

// What the optimiser remembers of parameters that are in no bucket, because they are frozen, until they are
// trained again. Each rank keeps 1/P of each vector. Every rank makes the same calls in the same order, while
// no gradients are on their way.
class KeptState {
 public:
  explicit KeptState(Group group) : group_(std::move(group)) {}

  // Keeps the state of a parameter: whole vectors, the same on every rank.
  void keep(const torch::Tensor& parameter, const OptimizerState& state);
  // Returns what was kept, whole on every rank, vectors in the parameter's shape; none for nothing.
  [[nodiscard]] std::optional<OptimizerState> gather(const torch::Tensor& parameter) const;
  // Returns what gather() does, and forgets it.
  [[nodiscard]] std::optional<OptimizerState> take(const torch::Tensor& parameter);
  void forget_all_but(const TensorSet& parameters);
  void forget_all() { entries_.clear(); }
  [[nodiscard]] std::vector<torch::Tensor> parameters() const;  // in the order in which they came

 private:
  struct Entry {
    torch::Tensor parameter;
    std::string scalars;
    struct Vector {
      std::string name;
      torch::Tensor part;  // bytes of this rank
      std::vector<std::int64_t> sizes;
      at::ScalarType type;
    };
    std::vector<Vector> vectors;
  };
  [[nodiscard]] const Entry* find(const torch::Tensor& parameter) const;
  [[nodiscard]] torch::Tensor gather(const Entry::Vector& vector) const;

  Group group_;
  std::vector<Entry> entries_;
};

}  // namespace dear::optim
