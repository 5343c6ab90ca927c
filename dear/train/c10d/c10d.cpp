#include "dear/train/c10d/c10d.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/base/units.h"
#include "dear/collective/programs/programs.h"
#include "dear/collective/single/single.h"
#include "dear/train/c10d/c10d_channels.h"
#include "dear/train/c10d/gloo.h"

namespace dear::train {
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

MadeBackend make_gloo_backend(const Placement& placement) {
  const LaunchEnvironment& environment = placement.environment;
  return {.backend = make_c10d(make_gloo({.rank = environment.rank,
                                          .size = environment.size,
                                          .master_address = environment.master_address,
                                          .master_port = environment.master_port,
                                          .interface_name = environment.network_interface,
                                          .timeout = placement.deadline.remaining()}),
                               {.reproducible = placement.reproducible}),
          .note = ""};
}

}  // namespace

std::unique_ptr<Backend> make_c10d(ProcessGroup process_group, const C10dOptions& options) {
  if (!process_group) throw ConfigError("there is no process group to make a group on: it is null");
  if (engine_of(process_group) == "nccl") {
    throw ConfigError(
        "a process group of NCCL carries only memory of GPUs: use collective::make_nccl() for it, and Gloo "
        "for "
        "memory of the host");
  }
  if (process_group->getSize() == 1) return collective::make_single();
  collective::Choose choose = [link = options.link](const collective::Errand& errand) {
    collective::Way way = choose_by_model(errand, link);
    const bool adds =
        errand.operation == Operation::reduce_scatter || errand.operation == Operation::all_reduce;
    if (adds && !errand.exact && errand.ranks > 2 && errand.bytes >= kLeastOnARing)
      way = {.algorithm = "ring"};
    way.segment_bytes = kSegmentBytes;
    return way;
  };
  return collective::make_program_backend(make_c10d_channels(std::move(process_group)),
                                          {.reproducible = options.reproducible,
                                           .choose = std::move(choose),
                                           .link = options.link,
                                           .lengths_apart = true,
                                           .most_ahead_bytes = kMostAheadBytes});
}

Group group_on(ProcessGroup process_group, const C10dOptions& options) {
  return Group(make_c10d(std::move(process_group), options), {.timeout = options.timeout});
}

const BackendTable& c10d_backends() {
  static const BackendTable kTable = {{kGlooBackend, kGlooBackendSummary, gloo_missing, make_gloo_backend}};
  return kTable;
}

}  // namespace dear::train
