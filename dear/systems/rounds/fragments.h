#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// The tensors of a fragment travel together, at one turn of a round.
namespace dear::systems::rounds {

// The tensors of a fragment, by the rank inside a site that exchanges them; each list is ascending. A rank
// may have none.
struct Fragment {
  std::vector<std::vector<std::size_t>> parts;
  [[nodiscard]] std::vector<std::size_t> tensors() const;  // of all parts
};

// Deals tensors of so many elements out to fragments, and those of each fragment to the ranks of a site: the
// largest first, each to where there is least so far. So the largest fragment, which has to travel within the
// delay, is about as small as can be, and layers that lie side by side come to different fragments (arXiv
// 2501.18512 calls that strided). A tensor of no elements is in none. ConfigError for more fragments than
// tensors with elements.
std::vector<Fragment> deal(const std::vector<std::int64_t>& elements, std::int64_t fragments, int inside);

// The fragment whose turn it is after `position` steps: turns are spread evenly over the `every` steps of a
// round, the last fragment's at its end. -1 for none. `every` is a multiple of `fragments`.
std::int64_t turn_at(std::int64_t position, std::int64_t every, std::int64_t fragments);

}  // namespace dear::systems::rounds
