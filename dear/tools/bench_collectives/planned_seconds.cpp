#include "dear/tools/bench_collectives/planned_seconds.h"

#include "dear/platform/cost/chunk_planner.h"

namespace dear::bench_collectives {

std::optional<double> planned_seconds(const GridSettings& grid, MeasuredOperation operation,
                                      std::int64_t bytes) {
  if (!grid.cluster) return std::nullopt;
  const auto seconds_of = [&](Collective collective) {
    return cost::make_chunk_plan(*grid.cluster, collective, bytes,
                                 {.algorithm = grid.algorithm, .chunks = grid.chunks})
        .seconds;
  };
  switch (operation) {
    case MeasuredOperation::pair:
      return seconds_of(Collective::reduce_scatter) + seconds_of(Collective::all_gather);
    case MeasuredOperation::reduce_scatter:
      return seconds_of(Collective::reduce_scatter);
    case MeasuredOperation::all_gather:
      return seconds_of(Collective::all_gather);
    case MeasuredOperation::all_reduce:
      return seconds_of(Collective::all_reduce);
    default:
      return std::nullopt;
  }
}

}  // namespace dear::bench_collectives
