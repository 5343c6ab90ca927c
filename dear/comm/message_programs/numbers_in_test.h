#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "dear/comm/message_programs/message_graph.h"

// Vectors for programs to work on: small whole numbers, so that any order of addition gives the same sum.
namespace dear::message_programs::testing {

inline constexpr std::int64_t kElement = sizeof(float);

inline void add_up(std::span<const std::byte* const> sources, std::byte* out, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += kElement) {
    float sum = 0;
    for (const std::byte* source : sources) {
      float value = 0;
      std::memcpy(&value, source + i, sizeof value);
      sum += value;
    }
    std::memcpy(out + i, &sum, sizeof sum);
  }
}

inline float value_of(int rank, std::int64_t i) { return static_cast<float>((i * 7 + rank * 5) % 23); }

inline float sum_of(int ranks, std::int64_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    sum += value_of(rank, i);
  }
  return sum;
}

// `elements` shared out among blocks as evenly as goes: some are empty when there are few.
inline std::vector<Range> even_blocks(int blocks, std::int64_t elements) {
  std::vector<Range> ranges;
  for (std::int64_t block = 0; block < blocks; ++block) {
    ranges.push_back(
        {.begin = elements * block / blocks * kElement, .end = elements * (block + 1) / blocks * kElement});
  }
  return ranges;
}

struct Case {
  std::int64_t elements = 0;
  std::int64_t segment_bytes = 64;
};
inline constexpr Case kCases[] = {{0, 64},    {1, 64},      {7, 1},        {64, 4096},
                                  {1001, 24}, {1001, 4096}, {70'001, 8192}};

}  // namespace dear::message_programs::testing
