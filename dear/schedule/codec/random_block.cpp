#include "dear/schedule/codec/random_block.h"

namespace dear::codec {

std::int64_t OwnRandomBlock::choose(std::span<const float> values, std::uint64_t key, std::int64_t step,
                                    std::int64_t /*count*/) {
  Draw random(kept_segments().compression().seed, step, key, rank_);
  return random.below(values.size());
}

}  // namespace dear::codec
