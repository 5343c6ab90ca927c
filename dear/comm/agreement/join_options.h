#pragma once

#include <cstdint>

namespace dear {

// By what the sum of gradients over ranks is divided in a step for which some ranks have no data, where
// nobody says how many samples it has (DataParallel::samples()).
enum class Divisor : std::uint8_t {
  all_ranks,        // a rank without data counts as one whose gradients are zero
  ranks_with_data,  // it does not count
};

// Uneven says how a join treats a rank that has run out of data while another has not.
enum class Uneven : std::uint8_t {
  go_on,  // the rank takes part in the others' steps, with weight zero, until all have run out
  error,  // MismatchError on every rank, at the first step of which that is so; it is not taken
};

// For a Join (train/data_parallel/join.h); the same on every rank.
struct JoinOptions {
  Divisor divisor = Divisor::all_ranks;
  Uneven uneven = Uneven::go_on;
};

}  // namespace dear
