#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "dear/schedule/codec/hash.h"

namespace dear::codec {

// [Note: peeling] Each key of a group has added its block to three rows. A row with one key left holds that
// key's sum; taken out of its other two rows, it leaves them with one key fewer. Keys are taken out in
// rounds: in each, every key that was alone in a row at the start of it. With at least 1.222 rows for each
// key all come out with high probability (Molloy 2005, doi:10.1002/rsa.20061).
//
// A row's cell has the number of its keys in the upper 16 bits and the exclusive or of their positions in the
// lower, so the last position needs no search, and the only counters are our own. A round looks at the rows
// that came down to one key in the round before.

struct PeeledGroup {
  std::int64_t peeled = 0;
  int rounds = 0;
};

// PeelingMemory is the working memory of one thread, for all groups in turn.
struct PeelingMemory {
  std::vector<std::byte> cells;
  std::vector<std::uint16_t> now, next;
  std::vector<std::uint8_t> taken;
};

// Integers wrap, floats do not.
template <typename T>
T sum_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}
template <typename T>
T difference_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) - static_cast<Unsigned>(b));
  } else {
    return a - b;
  }
}

// The cell of a row. Where a block is one value, its sum lies beside it: one access to memory for both.
template <int kBlock, typename T>
struct Cell {
  std::uint32_t keys = 0;
};
template <typename T>
struct Cell<1, T> {
  std::uint32_t keys = 0;
  T sum{};
};

// Peels one group: keys[i] are the rows of its i-th key, values[i * block] and on becomes its sum. `rows`
// holds row_count blocks, at most 2^16, and may be changed. A group of more keys than rows is left as it is.
// kBlock: 1 for blocks of one value, else 0.
//
// No branch depends on a key: a processor would guess half of them wrong, at the price of a whole key.
template <int kBlock, typename T>
PeeledGroup peel_group(std::span<const PackedRows> keys, std::size_t row_count, std::size_t block, T* rows,
                       T* values, PeelingMemory& memory) {
  constexpr std::uint32_t kOne = 1U << 16;
  PeeledGroup result;
  if (keys.empty() || keys.size() > row_count) return result;
  using OneCell = Cell<kBlock, T>;
  // One place more in lists, for what is written before it is known to count.
  memory.cells.resize(std::max(memory.cells.size(), row_count * sizeof(OneCell)));
  memory.now.resize(std::max(memory.now.size(), row_count + 1));
  memory.next.resize(memory.now.size());
  memory.taken.assign(keys.size(), 0);
  auto* const cells = reinterpret_cast<OneCell*>(memory.cells.data());
  for (std::size_t row = 0; row < row_count; ++row) {
    cells[row].keys = 0;
    if constexpr (kBlock == 1) cells[row].sum = rows[row];
  }
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const PackedRows key = keys[i];
    for (int which = 0; which < 3; ++which) {
      std::uint32_t& cell = cells[row_of(key, which)].keys;
      cell = (cell ^ i) + kOne;
    }
  }
  std::uint16_t* now = memory.now.data();
  std::uint16_t* next = memory.next.data();
  std::uint8_t* const taken = memory.taken.data();
  std::size_t alone = 0;
  for (std::size_t row = 0; row < row_count; ++row) {
    now[alone] = static_cast<std::uint16_t>(row);
    alone += (cells[row].keys >> 16) == 1 ? 1 : 0;
  }
  while (alone > 0) {
    // A key may be alone in several rows, or another of its rows came first in the last round.
    std::size_t found = 0;
    for (std::size_t i = 0; i < alone; ++i) {
      const std::uint16_t row = now[i];
      const std::uint32_t cell = cells[row].keys;
      std::uint8_t& already = taken[cell & (kOne - 1)];
      const bool takes = ((cell >> 16) == 1) & (already == 0);
      already |= static_cast<std::uint8_t>(takes);
      now[found] = row;
      found += takes ? 1 : 0;
    }
    std::size_t after = 0;
    for (std::size_t i = 0; i < found; ++i) {
      const std::size_t row = now[i];
      const std::uint32_t position = cells[row].keys & (kOne - 1);
      const PackedRows key = keys[position];
      T sum{};
      T* const value = values + position * (kBlock == 1 ? 1 : block);
      if constexpr (kBlock == 1) {
        sum = *value = cells[row].sum;
      } else {
        std::copy_n(rows + row * block, block, value);
      }
      for (int which = 0; which < 3; ++which) {
        const std::uint32_t other = row_of(key, which);
        OneCell& cell = cells[other];
        cell.keys = (cell.keys ^ position) - kOne;
        if constexpr (kBlock == 1) {
          cell.sum = difference_of(cell.sum, sum);
        } else {
          T* const rest = rows + other * block;
          for (std::size_t lane = 0; lane < block; ++lane)
            rest[lane] = difference_of(rest[lane], value[lane]);
        }
        next[after] = static_cast<std::uint16_t>(other);
        after += (cell.keys >> 16) == 1 ? 1 : 0;
      }
    }
    result.peeled += static_cast<std::int64_t>(found);
    result.rounds += found > 0 ? 1 : 0;
    std::swap(now, next);
    alone = after;
  }
  return result;
}

}  // namespace dear::codec
