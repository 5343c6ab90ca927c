#pragma once

#include <algorithm>
#include <cstdint>

#include "dear/base/vocabulary/range.h"

namespace dear::methods::rounds {

// A Mask says which coordinates each column of a round sends: of `columns` columns every coordinate has
// exactly `owners`, and a column has floor or ceil of dimension * owners / columns coordinates (0 or 1 where
// that is below 1). The template of TAMUNA (Condat et al. 2023, arXiv 2302.09832): ones run through the
// columns row by row, `owners` to a row. A random one comes from dealing columns to clients at random.
// Nothing is stored: each question takes constant time.
class Mask {
 public:
  // ConfigError unless there are coordinates, and 1 <= owners <= columns.
  Mask(std::int64_t dimension, int columns, int owners);
  // All coordinates of each column.
  static Mask whole(std::int64_t dimension, int columns) { return {dimension, columns, columns}; }

  [[nodiscard]] std::int64_t dimension() const { return dimension_; }
  [[nodiscard]] int columns() const { return static_cast<int>(columns_); }
  [[nodiscard]] int owners() const { return static_cast<int>(owners_); }

  [[nodiscard]] bool owns(int column, std::int64_t coordinate) const {
    if (sparse_) return column < ones_ && column % dimension_ == coordinate;
    const std::int64_t place = (column - owners_ * coordinate) % columns_;
    return (place < 0 ? place + columns_ : place) < owners_;
  }
  // How many coordinates of a range the column has.
  [[nodiscard]] std::int64_t count(int column, const Range& range) const;
  // Calls `visit(coordinate)` for each of them, in ascending order.
  template <typename Visit>
  void each(int column, const Range& range, const Visit& visit) const {
    if (sparse_) {
      if (column < ones_ && range.contains(column % dimension_)) visit(column % dimension_);
      return;
    }
    if (owners_ == columns_) {
      for (std::int64_t coordinate = range.begin; coordinate < range.end; ++coordinate) visit(coordinate);
      return;
    }
    for (std::int64_t one = column + columns_ * ones_before(column, range.begin); one < owners_ * range.end;
         one += columns_)
      visit(one / owners_);
  }

 private:
  // How many ones of the column lie in coordinates below this. Its ones are numbers column, column + columns,
  // ... of all ones, which are counted row by row.
  [[nodiscard]] std::int64_t ones_before(int column, std::int64_t coordinate) const {
    return std::max<std::int64_t>(0, (owners_ * coordinate - column + columns_ - 1) / columns_);
  }

  std::int64_t dimension_, columns_, owners_;
  std::int64_t ones_ = 0;  // in all
  bool sparse_ = false;    // fewer ones than columns
};

}  // namespace dear::methods::rounds
