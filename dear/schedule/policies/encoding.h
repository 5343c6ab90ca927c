#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/workload/layers/workload.h"

namespace dear {

// [Note: encoded buckets] The gradients of a bucket may travel encoded (codec/): in one or several parts,
// each of which is reduced, or gathered, once. Encode and Decode are steps on a lane of their own, so that
// they run beside the program:
//   reducible payloads        encode -> reduce-scatter -> all-gather -> decode -> update
//   gatherable payloads       encode -> all-gather of every rank's own -> decode -> update
//   two rounds                encode -> all-reduce -> encode -> reduce-scatter -> all-gather -> decode ->
//                             update
// In two rounds travel low rank (its two factors) and sketches (the index, then values by key).
// The first halves go where the policy reduces the bucket, the second ones where it gathers it. Every rank
// decodes all and updates all: a sum of encoded gradients has no shard of a bucket. The decoding overwrites
// gradients, so it comes after the commit.

// How one part of an encoded bucket travels.
struct EncodedPart {
  enum class Way : std::uint8_t {
    halves,   // by reduce-scatter and all-gather; by all-reduce under a policy that reduces so
    reduced,  // all-reduced at once, for the next round of encoding
    gathered  // each rank's own goes to all others
  };
  Way way = Way::halves;
  std::uint8_t round = 0;  // of the encode that makes it
  std::int64_t bytes = 0;  // of the vector that travels, all ranks' together where it is gathered
};

// How the gradients of one bucket travel.
struct Encoding {
  std::vector<EncodedPart> parts;  // empty: dense
  // Gathered parts travel with the all-gathers under the next forward; else under the backward.
  bool gathers_late = false;
  std::vector<double> encode_seconds;  // by round; what is missing counts as 0
  double decode_seconds = 0;

  [[nodiscard]] bool dense() const { return parts.empty(); }
  [[nodiscard]] std::uint8_t rounds() const;
};

// The schedule with these buckets encoded, by bucket. ScheduleError, naming the policy, for one that reduces
// an encoded bucket in chunks or inside nodes, updates it ahead of the commit, or gathers parameters in the
// next iteration.
Schedule with_encodings(const Schedule& schedule, const Workload& workload, const Grouping& grouping,
                        const std::vector<Encoding>& encodings);

// ConfigError that names the policy and those that can, unless with_encodings() takes its schedules.
void require_policy_that_compresses(const Policy& policy);

}  // namespace dear
