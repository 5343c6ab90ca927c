#include "dear/backends/awaited/awaited.h"

#include <utility>

#include "dear/base/units.h"
#include "dear/collective/single.h"
#include "dear/programs/program_backend.h"
#include "dear/transport/awaited/awaited.h"

namespace dear::backends {
namespace {

// A message is handed between three threads on each side: long ones keep the wire busy meanwhile. Between 4
// hosts at 1 Gb/s a reduce-scatter of 64 MiB takes 530 ms in segments of 256 KiB, and 470 in these.
constexpr std::int64_t kSegmentBytes = kMiB;
// Enough for a wire of 1 Gb/s. Each receive tells the sender that it is ready, and wakes it: more of them at
// the start of a collective held up its first messages by milliseconds.
constexpr std::int64_t kMostAheadBytes = 2 * kSegmentBytes;
// From here on sums go round a ring. Sent straight to their owners, the messages of all peers meet at one
// port of the switch, and TCP loses what that port cannot hold: between 4 hosts at 1 Gb/s a tenth of the
// rate.
constexpr std::int64_t kLeastOnARing = kMiB;

}  // namespace

std::unique_ptr<Backend> make_awaited(std::unique_ptr<transport::PointToPoint> point_to_point,
                                      const AwaitedOptions& options) {
  if (point_to_point->size() == 1) return collective::make_single();
  programs::Choose choose = [link = options.link](const programs::CollectiveCall& call) {
    programs::AlgorithmChoice choice = programs::choose_by_model(call, link);
    const bool adds = reduces(call.collective);
    if (adds && !call.exact && call.ranks > 2 && call.bytes >= kLeastOnARing) choice = {.algorithm = "ring"};
    choice.segment_bytes = kSegmentBytes;
    return choice;
  };
  return programs::make_program_backend(transport::make_awaited(std::move(point_to_point)),
                                        {.reproducible = options.reproducible,
                                         .choose = std::move(choose),
                                         .link = options.link,
                                         .lengths_apart = true,
                                         .most_ahead_bytes = kMostAheadBytes});
}

}  // namespace dear::backends
