#include "dear/methods/edge/drawn_groups.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/edge/draws.h"

namespace dear::methods::edge {

PabaProblem draw_groups(const GroupsShape& shape) {
  constexpr int kMost = 10'000;
  check(shape.cell);
  if (shape.groups < 1 || shape.groups > kMost || shape.workers < 1 || shape.workers > kMost)
    throw ConfigError(fmt::format("{} groups of {} workers cannot be drawn: give from 1 to {} of each",
                                  shape.groups, shape.workers, kMost));
  if (!(shape.slowest_hz > 0) || !std::isfinite(shape.fastest_hz) || shape.fastest_hz < shape.slowest_hz)
    throw ConfigError(fmt::format("workers between {} Hz and {} Hz cannot be: give the lower first",
                                  shape.slowest_hz, shape.fastest_hz));
  PabaProblem problem{.groups = std::vector<std::vector<Worker>>(index_of(shape.groups)),
                      .parameters = shape.parameters,
                      .bits_per_parameter = shape.bits_per_parameter,
                      .bandwidth_down_hz = shape.cell.bandwidth_hz,
                      .bandwidth_up_hz = shape.cell.bandwidth_hz};
  const PathLoss& loss = find_named(path_losses(), shape.cell.path_loss, "path loss");
  const int all = shape.groups * shape.workers;
  const std::vector<double> distances = draw_distances(shape.cell, all, shape.seed);
  for (int number = 0; number < all; ++number) {
    codec::Draw draw = draws_of(shape.seed, Purpose::place, 1, number);
    const double gain = path_gain(loss, distances[index_of(number)]) * draw_fading(shape.seed, 0, number);
    const double over_noise = gain / shape.cell.noise_watts_per_hz;
    problem.groups[index_of(number / shape.workers)].push_back(
        {.cycles_per_parameter = shape.cycles_per_parameter / shape.workers,
         .frequency_hz = shape.slowest_hz + unit(draw) * (shape.fastest_hz - shape.slowest_hz),
         .efficiency_down = efficiency(shape.cell.bandwidth_hz, shape.cell.down_power_watts * over_noise),
         .efficiency_up = efficiency(shape.cell.bandwidth_hz / all, shape.cell.power_watts * over_noise)});
  }
  return problem;
}

}  // namespace dear::methods::edge
