#pragma once

#include <cstdint>

// Generators of problems refuse these shapes, each with a ConfigError.
namespace dear::methods::rounds {

void check_shape(int clients, std::int64_t dimension, double heterogeneity);
void check_condition(double condition);

}  // namespace dear::methods::rounds
