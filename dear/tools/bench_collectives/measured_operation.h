#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/dtype.h"

namespace dear::bench_collectives {

// What is measured: a collective of DeAR's, or the pair that takes the place of an all-reduce.
enum class MeasuredOperation : std::uint8_t {
  pair,  // reduce-scatter, then all-gather
  reduce_scatter,
  all_gather,
  all_reduce,
  broadcast,
  all_to_all,
  all_to_all_v,  // of blocks that are filled unevenly, see uneven_rows.h
  barrier
};

const std::vector<MeasuredOperation>& measured_operations();
std::string_view name_of(MeasuredOperation operation);              // "reduce-scatter+all-gather"
MeasuredOperation parse_measured_operation(std::string_view name);  // ConfigError that lists them all

bool reduces(MeasuredOperation operation);
// Whether the result has a place of its own, beside the vector.
bool has_output(MeasuredOperation operation);

// Bytes over seconds, times this, is the bus bandwidth: what a link of the most loaded rank carries, so that
// numbers of ranks and operations can be compared (nccl-tests, doc/PERFORMANCE.md). `bytes` is the whole
// vector, as everywhere in DeAR. 0 for a barrier; of an all-to-all-v that of full blocks.
double bus_factor(MeasuredOperation operation, int ranks);

}  // namespace dear::bench_collectives
