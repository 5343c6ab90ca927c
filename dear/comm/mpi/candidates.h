#pragma once

#include <cstdint>
#include <vector>

#include "dear/comm/mpi/choices.h"

namespace dear::backends {

// [Note: large messages over TCP] MPI sends a message of up to 64 KiB with its headers at once (Open MPI's
// btl_tcp_eager_limit; UCX as DeAR sets it). For a longer one it asks the receiver first. The answer travels
// on the connection that carries this direction's data, behind all that MPI has handed over; and Open MPI
// hands over the rest of a message of any length in one piece. So of two ranks that send each other a long
// message, the one whose answer came first sends all of it before the other may begin: the wire is full in
// one direction at a time, and both together take twice as long, unless they begin at the same moment. Two
// hosts at 1 Gb/s got 47 to 58 % out of the wire with segments of 64 KiB and more, 93 to 96 % with shorter
// ones.
inline constexpr std::int64_t kEagerSegment = 32 * 1024;

// Up to this size sending all contributions in full costs less than a second round.
inline constexpr std::int64_t kMostGathered = 4 * 1024;

struct CandidateOptions {
  bool across_hosts = false;
  bool sums_go_around = false;  // see [Note: sums across hosts]
};
// The programs to measure; never none. The first is the one that rests on the fewest assumptions.
std::vector<message_programs::AlgorithmChoice> candidates(const message_programs::CollectiveCall& call,
                                                          const CandidateOptions& options);

}  // namespace dear::backends
