#include "dear/transport/play.h"

namespace dear::transport {

void play(const Score& score, Channels& channels, const Channels::Describe& what, Deadline deadline) {
  Stage stage;
  Player player(PlanBuilder({.rank = channels.rank(),
                             .element_bytes = score.element_bytes,
                             .segment_bytes = score.segment_bytes})
                    .add(*score.program, score.blocks)
                    .finish());
  player.play(score.performance, channels, stage, what, deadline);
}

}  // namespace dear::transport
