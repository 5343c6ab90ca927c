#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

// Judges which of several algorithms is the fastest from times that a busy machine disturbs. Pure functions
// of times that all ranks have alike, so all ranks decide alike.
namespace dear::backends {

// Seconds that one algorithm took in each round, on the slowest rank. A look is one such measurement.
// Algorithms take turns: look i of one algorithm stands beside look i of another, under the same load.
using Looks = std::vector<double>;

// The least number of looks that make a judgement.
inline constexpr std::size_t kLeastLooks = 3;

double median(Looks looks);
// The upper quartile of the looks: an algorithm that is fast only every other time is not fast.
double usual_seconds(Looks looks);
// Whether `one` needs a twentieth less of the usual seconds, and is the faster one in three of four rounds.
// Rounds that only one of the two had do not count.
bool clearly_faster(const Looks& one, const Looks& other);
// Whether the best look of an algorithm took half as long again as the usual one of `fastest`, twice or more:
// it need not be looked at again.
bool is_hopeless(const Looks& looks, const Looks& fastest);

struct Ranking {
  std::size_t best = 0;
  std::optional<std::size_t> second;  // the one to compare with the best again
};
// The first algorithm stays the best unless a later one is clearly faster. `choices` is not empty, nor any of
// its looks.
Ranking rank_choices(const std::vector<Looks>& choices);

// How a remembered algorithm compares with today.
enum class Standing : std::uint8_t {
  holds,
  faster,    // by a quarter: it keeps its place, and today's time is remembered
  slower,    // by a quarter
  overtaken  // the one that was second is clearly faster
};
// `remembered_seconds` are usual_seconds(); `looks` and `second` are today's, `second` empty where there is
// none.
Standing standing(double remembered_seconds, const Looks& looks, const Looks& second);

}  // namespace dear::backends
