#include "dear/methods/rounds/mask.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::rounds {

Mask::Mask(std::int64_t dimension, int columns, int owners)
    : dimension_(dimension), columns_(columns), owners_(owners) {
  if (dimension < 1) throw ConfigError("a mask of no coordinates sends nothing: give at least 1");
  if (owners < 1 || owners > columns)
    throw ConfigError(fmt::format("{} of {} clients cannot send each coordinate: give from 1 to {}", owners,
                                  columns, columns));
  ones_ = dimension_ * owners_;
  sparse_ = ones_ < columns_;
}

std::int64_t Mask::count(int column, const Range& range) const {
  if (range.empty()) return 0;
  if (sparse_) return column < ones_ && range.contains(column % dimension_) ? 1 : 0;
  return ones_before(column, range.end) - ones_before(column, range.begin);
}

}  // namespace dear::methods::rounds
