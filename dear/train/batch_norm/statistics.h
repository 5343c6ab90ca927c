#pragma once

#include <cstdint>

#include <torch/types.h>

#include "dear/comm/group/group.h"

namespace dear::batch_norm {

// Sums over ranks, in the order of ranks, so that every rank has the same bits. One call at a time.
class Statistics {
 public:
  explicit Statistics(const Group& group) : group_(group.duplicate()) {}
  [[nodiscard]] int size() const { return group_.size(); }
  [[nodiscard]] int rank() const { return group_.rank(); }

  // Moments are those of the values of one rank, or of all ranks together; 1-D, fp64, by channel.
  struct Moments {
    double count;                 // of values for each channel
    torch::Tensor mean, squares;  // the mean, and the sum of squared differences from it
  };
  // Chan, Golub & LeVeque 1979 (Updating formulae and a pairwise algorithm for computing sample variances),
  // rank after rank.
  [[nodiscard]] Moments joined(const Moments& mine);
  // Returns the sums over ranks of two vectors of fp64.
  void sum(torch::Tensor& a, torch::Tensor& b);

 private:
  [[nodiscard]] double* room_for(std::int64_t doubles);

  Group group_;
  Buffer buffer_;
};

}  // namespace dear::batch_norm
