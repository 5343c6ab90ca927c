#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dear {

// MemoryReport is the memory of one rank of a training, in bytes by kind. Memory that all ranks of a host
// share is counted on rank 0 alone, so that the reports of all ranks add up to what there is. What operators
// and autograd hold for a while, activations above all, and what libraries need for themselves, is no part.
struct MemoryReport {
  std::int64_t parameters = 0;       // trained ones
  std::int64_t gradients = 0;        // of them
  std::int64_t padding = 0;          // of buckets of both, which makes shards equal
  std::int64_t optimizer_state = 0;  // vectors of what this rank updates, without masters
  std::int64_t masters = 0;          // fp32 copies of what this rank updates of parameters in fp16 and bf16
  std::int64_t compression = 0;      // residuals, momentum, factors, buffers of payloads and of sparse rows
  std::int64_t replaced = 0;         // what replaced parameters in one copy, until the next update
  std::int64_t frozen = 0;           // the model's other parameters, and its buffers
  std::int64_t staging = 0;          // through which buffers of the model, and small things, travel
  std::int64_t trace = 0;            // spans that are kept, for a trace or to be planned by

  // No part of the total: what this rank does without, because ranks share one copy of the parameters.
  std::int64_t saved_by_one_copy = 0;
  // No part of the total: what a change of buckets (regroup(), a trial of tuning) needs more for its time,
  // namely a second set of buckets and the optimiser's state, whole and once more in shards.
  std::int64_t change_of_buckets = 0;

  [[nodiscard]] std::int64_t total() const;
  // Every number by its name, those of the total first, then "total", then the others.
  [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> items() const;
};

}  // namespace dear
