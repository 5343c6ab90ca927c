#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace dear::codec {

// [Note: peeling] Each key of a group has added its block to three rows. A row with one key left holds that
// key's sum; taken out of its other two rows, it leaves them with one key fewer. Keys are taken out in
// rounds: in each, every key that was alone in a row at the start of it. With at least 1.222 rows for each
// key all come out with high probability (Molloy 2005, doi:10.1002/rsa.20061).
//
// A row's cell has the number of its keys above the exclusive or of their positions, so the last position
// needs no search, and the only counters are our own. A round looks at the rows that came down to one key in
// the round before.

// Three rows of a key in one word, at most 2^20 each.
constexpr std::uint64_t packed_rows(std::array<std::uint32_t, 3> rows) {
  return rows[0] | std::uint64_t{rows[1]} << 20 | std::uint64_t{rows[2]} << 40;
}

struct PeeledGroup {
  std::int64_t peeled = 0;
  int rounds = 0;
};

// What one thread works with in all groups.
struct PeelingMemory {
  std::vector<std::uint64_t> cells;
  std::vector<std::uint32_t> now, next;
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

// Peels one group: keys[i] are the packed rows of its i-th key, values[i * block] and on becomes its sum.
// `rows` holds row_count blocks, and afterwards what was not taken out. kBlock: the block, if known; else 0.
template <int kBlock, typename T>
PeeledGroup peel_group(std::span<const std::uint64_t> keys, std::size_t row_count, std::int64_t block,
                       T* rows, T* values, PeelingMemory& memory) {
  constexpr std::uint64_t kOne = std::uint64_t{1} << 32;
  constexpr std::uint64_t kRow = (1U << 20) - 1;
  const std::size_t length = kBlock > 0 ? kBlock : static_cast<std::size_t>(block);
  if (memory.cells.size() < row_count) {
    memory.cells.resize(row_count);
    memory.now.resize(row_count + 1);  // one place more, for what is written before it is known to count
    memory.next.resize(row_count + 1);
  }
  std::uint64_t* const cells = memory.cells.data();
  std::fill_n(cells, row_count, 0);
  for (std::uint64_t i = 0; i < keys.size(); ++i) {
    const std::uint64_t key = keys[i];
    for (const std::uint64_t row : {key & kRow, (key >> 20) & kRow, key >> 40}) {
      cells[row] = (cells[row] ^ i) + kOne;
    }
  }
  std::uint32_t* now = memory.now.data();
  std::uint32_t* next = memory.next.data();
  std::size_t alone = 0;
  for (std::size_t row = 0; row < row_count; ++row) {
    now[alone] = static_cast<std::uint32_t>(row);
    alone += (cells[row] >> 32) == 1 ? 1 : 0;
  }
  PeeledGroup result;
  while (alone > 0) {
    const std::int64_t before = result.peeled;
    std::size_t after = 0;
    for (std::size_t i = 0; i < alone; ++i) {
      const std::size_t row = now[i];
      const std::uint64_t cell = cells[row];
      if ((cell >> 32) != 1) continue;  // taken out by another of its rows
      const std::uint64_t position = cell & (kOne - 1);
      const std::uint64_t key = keys[position];
      const T* const sum = rows + row * length;
      T* const value = values + position * length;
      for (std::size_t lane = 0; lane < length; ++lane) value[lane] = sum[lane];
      for (const std::uint64_t other : {key & kRow, (key >> 20) & kRow, key >> 40}) {
        const std::uint64_t left = (cells[other] ^ position) - kOne;
        cells[other] = left;
        T* const rest = rows + other * length;
        for (std::size_t lane = 0; lane < length; ++lane) rest[lane] = difference_of(rest[lane], value[lane]);
        next[after] = static_cast<std::uint32_t>(other);
        after += (left >> 32) == 1 ? 1 : 0;
      }
      ++result.peeled;
    }
    result.rounds += result.peeled > before ? 1 : 0;
    std::swap(now, next);
    alone = after;
  }
  return result;
}

}  // namespace dear::codec
