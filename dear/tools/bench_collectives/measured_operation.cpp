#include "dear/tools/bench_collectives/measured_operation.h"

#include <array>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"

namespace dear::bench_collectives {
namespace {

// In the order of the enumeration.
constexpr std::array<std::string_view, 8> kNames{"reduce-scatter+all-gather",
                                                 "reduce-scatter",
                                                 "all-gather",
                                                 "all-reduce",
                                                 "broadcast",
                                                 "all-to-all",
                                                 "all-to-all-v",
                                                 "barrier"};

}  // namespace

const std::vector<MeasuredOperation>& measured_operations() {
  using enum MeasuredOperation;
  static const std::vector<MeasuredOperation> kAll{pair,      reduce_scatter, all_gather,   all_reduce,
                                                   broadcast, all_to_all,     all_to_all_v, barrier};
  return kAll;
}

std::string_view name_of(MeasuredOperation operation) {
  return kNames.at(static_cast<std::size_t>(operation));
}

MeasuredOperation parse_measured_operation(std::string_view name) {
  for (const MeasuredOperation operation : measured_operations()) {
    if (name_of(operation) == name) {
      return operation;
    }
  }
  throw ConfigError(
      fmt::format("there is no operation '{}'; choose one of {}", name, fmt::join(kNames, ", ")));
}

bool reduces(MeasuredOperation operation) {
  using enum MeasuredOperation;
  return operation == pair || operation == reduce_scatter || operation == all_reduce;
}

bool has_output(MeasuredOperation operation) {
  return operation == MeasuredOperation::all_to_all || operation == MeasuredOperation::all_to_all_v;
}

double bus_factor(MeasuredOperation operation, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (operation) {
    case MeasuredOperation::pair:
    case MeasuredOperation::all_reduce:
      return 2 * others;
    case MeasuredOperation::reduce_scatter:
    case MeasuredOperation::all_gather:
    case MeasuredOperation::all_to_all:
    case MeasuredOperation::all_to_all_v:
      return others;
    case MeasuredOperation::broadcast:
      return 1;
    case MeasuredOperation::barrier:
      break;
  }
  return 0;
}

}  // namespace dear::bench_collectives
