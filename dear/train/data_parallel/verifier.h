#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/comm/group/group.h"
#include "dear/train/model/model_scan.h"

namespace dear::train {

// A number of the bits of a tensor's elements, the same on the CPU and on other devices: sum_i bits_i (2 i +
// 1) modulo 2^64, with bits_i as a signed integer. Tensors that differ in one element have other numbers.
std::uint64_t digest_of_bits(const torch::Tensor& tensor);

// Compares parameters, which are alike on all ranks while nothing is broken, now and then. Digests travel in
// one all-reduce, on a group of its own, under the forward and backward passes of the next step.
//
// One thread calls, and every rank makes the same calls.
class Verifier {
 public:
  // Makes the group, together with all ranks.
  Verifier(const Group& group, int every) : group_(group.duplicate()), every_(every) {}

  // Whether parameters are to be compared after this step, of those that were counted.
  [[nodiscard]] bool counts_to_due() { return ++steps_ % every_ == 0; }
  // Sends digests of parameters that are whole and that nothing changes meanwhile.
  void send(const std::vector<TrainedParameter>& parameters);
  // Waits for what was sent. MismatchError, on every rank alike, where a parameter differs: it names the
  // first one and the ranks in the minority.
  void hear();

 private:
  Group group_;
  int every_;
  std::int64_t steps_ = 0, sent_at_ = 0;
  std::vector<std::string> names_;  // of what was sent, with its digests
  std::vector<std::uint64_t> digests_;
  Buffer buffer_;
  std::optional<Pending> pending_;
};

}  // namespace dear::train
