#include "dear/methods/rounds/shapes.h"

#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::rounds {

void check_shape(int clients, std::int64_t dimension, double heterogeneity) {
  if (clients < 1 || dimension < 1)
    throw ConfigError(fmt::format(
        "a problem of {} clients in {} dimensions cannot be: give at least 1 of each", clients, dimension));
  if (!std::isfinite(heterogeneity) || heterogeneity < 0)
    throw ConfigError(fmt::format("a heterogeneity of {} cannot be: give 0 or more", heterogeneity));
}

void check_condition(double condition) {
  if (!std::isfinite(condition) || condition <= 1)
    throw ConfigError(
        fmt::format("a condition number of {} cannot be: give L / mu, a finite number above 1", condition));
}

}  // namespace dear::methods::rounds
