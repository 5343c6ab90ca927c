#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "dear/schedule/codec/draw.h"

// Random numbers of training by rounds. Each depends on a seed, a purpose, a round and a client, so every
// rank draws the same ones, whichever clients it has and whatever it drew before.
namespace dear::methods::rounds {

enum class Purpose : std::uint64_t { cohort = 1, steps, absence, samples, stage, data };

inline codec::Draw draws_of(std::uint64_t seed, Purpose purpose, std::int64_t round,
                            int client = codec::Draw::kEveryRank) {
  return {seed, round, static_cast<std::uint64_t>(purpose), client};
}

// A number in [0, 1), a multiple of 2^-53.
inline double unit(codec::Draw& draw) { return static_cast<double>(draw.next() >> 11) * 0x1p-53; }
inline bool coin(codec::Draw& draw, double probability) { return unit(draw) < probability; }
// A number of the standard normal distribution (Box and Muller 1958, doi:10.1214/aoms/1177706645).
inline double normal(codec::Draw& draw) {
  const double radius = std::sqrt(-2 * std::log(1 - unit(draw)));
  return radius * std::cos(2 * std::numbers::pi * unit(draw));
}

}  // namespace dear::methods::rounds
