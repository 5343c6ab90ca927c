#pragma once

#include <cstdint>

#include "dear/methods/rounds/draws.h"

// Random numbers of learning at the edge. Each depends on a seed, a purpose, a round and a device, so no
// policy changes what another draws. unit(), coin() and normal() are those of rounds.
namespace dear::methods::edge {

using rounds::coin;
using rounds::normal;
using rounds::unit;

enum class Purpose : std::uint64_t {
  place = 101,
  fading,
  compute,
  schedule,
  noise,
  quantiser,
  samples,
  graph,
  model,
  data,
  projection
};

inline codec::Draw draws_of(std::uint64_t seed, Purpose purpose, std::int64_t round,
                            int device = codec::Draw::kEveryRank) {
  return {seed, round, static_cast<std::uint64_t>(purpose), device};
}

// A number of the exponential distribution with mean 1.
inline double exponential(codec::Draw& draw) { return -std::log1p(-unit(draw)); }

}  // namespace dear::methods::edge
