#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "dear/schedule/codec/blocks.h"
#include "dear/schedule/codec/kept.h"

namespace dear::codec {

// The block of largest norm among those that lie one behind another from a segment's beginning, each rank its
// own. Where they do not reach its end, the last of all lies at the end. Of equal ones the first, and one
// with a NaN before every other.
class BlockTopK final : public Blocks {
 public:
  explicit BlockTopK(KeptSegments kept) : Blocks(std::move(kept)) {}

 private:
  std::int64_t choose(std::span<const float> values, std::uint64_t key, std::int64_t step,
                      std::int64_t count) override;
};

}  // namespace dear::codec
