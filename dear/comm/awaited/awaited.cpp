#include "dear/comm/awaited/awaited.h"

#include <utility>

#include "dear/base/vocabulary/units.h"
#include "dear/comm/awaited/channels/awaited.h"
#include "dear/comm/group/single.h"
#include "dear/comm/message_programs/program_backend.h"

namespace dear::backends {
namespace {

// Three threads on each side hand a message on, so long messages keep the wire busy meanwhile. Between 4
// hosts at 1 Gb/s a reduce-scatter of 64 MiB takes 530 ms in segments of 256 KiB, and 470 ms in segments of 1
// MiB.
constexpr std::int64_t kSegmentBytes = kMiB;
// Receives posted ahead of the data: this much is enough for a wire of 1 Gb/s. Each receive tells the sender
// that it is ready, and wakes it. More receives at the start of a collective held up its first messages by
// milliseconds.
constexpr std::int64_t kMostAheadBytes = 2 * kSegmentBytes;
// From this size on sums go round a ring. If all ranks sent straight to the owner of a shard, the messages
// would meet at one port of the switch, and TCP would lose what that port cannot hold: a tenth of the rate
// between 4 hosts at 1 Gb/s.
constexpr std::int64_t kLeastOnARing = kMiB;

}  // namespace

std::unique_ptr<Backend> make_awaited(std::unique_ptr<channels::PointToPoint> point_to_point,
                                      const AwaitedOptions& options) {
  if (point_to_point->size() == 1) return comm::make_single();
  message_programs::Choose choose = [link = options.link](const message_programs::CollectiveCall& call) {
    message_programs::AlgorithmChoice choice = message_programs::choose_by_model(call, link);
    const bool adds = reduces(call.collective);
    if (adds && !call.exact && call.ranks > 2 && call.bytes >= kLeastOnARing) choice = {.algorithm = "ring"};
    choice.segment_bytes = kSegmentBytes;
    return choice;
  };
  return message_programs::make_program_backend(channels::make_awaited(std::move(point_to_point)),
                                                {.reproducible = options.reproducible,
                                                 .choose = std::move(choose),
                                                 .link = options.link,
                                                 .lengths_apart = true,
                                                 .most_ahead_bytes = kMostAheadBytes});
}

}  // namespace dear::backends
