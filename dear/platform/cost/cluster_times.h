#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dear/base/vocabulary/collective.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/platform/cost/collective_times.h"

// Times of collectives on a cluster, in closed form: for every algorithm so many seconds, and so many more a
// byte. m is the bytes of the whole vector, P the number of ranks, n the members of a dimension.
//
// Flat algorithms go over all ranks, numbered inside out, and cross each member's border once in each
// direction, so that one stream has all links of the member:
//   ring         P-1 rounds of m/P bytes, each as slow as the slowest dimension: the largest alpha, the
//                largest beta (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002)
//   pipelined-ring  the same bytes, but a rank's round begins when its own message has come, so that
//   start-ups
//                add up along the ring, each hop with the alpha of the dimension that it crosses: as NCCL
//                reckons (src/graph/tuning.cc)
//   double-tree  2 ceil(log2 n) alpha for each dimension, m of the largest beta. Its reduce-scatter is a
//                reduce to the roots, its all-gather a broadcast: the halves of a tree all-reduce. As those
//                leave no shards, "auto" uses them for an all-reduce and a broadcast alone (Sanders, Speck,
//                Träff 2009, doi:10.1016/j.parco.2009.09.001)
// Hierarchical ones reduce-scatter in dimension 0, then its results in dimension 1, and so on, and gather in
// the opposite order. All ranks talk at once: those of a member share its links. In each dimension there are
//   ring              n-1 rounds, (n-1)/n of the bytes; pairwise exchange takes as long
//   halving-doubling  log2 n rounds and as many bytes; more of both unless n is a power of two. Switched only
//                     (Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521)
//   bruck             ceil(log2 n) rounds, (n-1)/n of the bytes. Switched only (doi:10.1109/71.642949)
//   direct            one round, 1/n of the bytes on each link. Full mesh only
// A hierarchical broadcast goes from the outermost dimension inwards: as a chain where it is a ring, else as
// a scatter and an all-gather. Chains and trees are pipelined: as in ring.h, only their first segment pays
// for start-ups. All else takes, on a flat network, what program_time.h plays message by message.
//
// Algorithms that go in chunks, over all dimensions at once, are "baseline", "round-robin", "themis-fifo",
// "themis-scf", "balanced", and "themis", the best of these: see chunk_planner.h. Their broadcasts are
// hierarchical.
//
// Collectives follow each other closely: the start-up of each is that of its messages, or what the software
// needs to launch the next one (Software::launch_seconds), whichever is longer.
namespace dear::cost {

class ChunkSeconds;

struct ClusterTimesOptions {
  // "auto": the fastest for the size of all but pipelined-ring; "hierarchical": the fastest of those; "ring",
  // "pipelined-ring" or "double-tree": flat; "nccl": pipelined-ring or double-tree, what NCCL chooses from;
  // one that goes in chunks; or one for each dimension, innermost first, as in "hierarchical:direct,ring",
  // where "*" is any. The name of a single one stands for itself in every dimension. Dimensions of one member
  // do not count.
  std::string algorithm = "auto";
};

struct ChosenTime {
  double seconds = 0;
  std::string algorithm;  // as in the options
};

class ClusterTimes {
 public:
  struct AlgorithmTime {
    double start_up = 0;  // seconds
    double per_byte = 0;  // seconds
    std::string algorithm{};
    [[nodiscard]] double seconds(double bytes) const { return start_up + per_byte * bytes; }
  };

  // ConfigError for a cluster that is none (validate), and for an algorithm that it cannot have.
  explicit ClusterTimes(const Cluster& cluster, const ClusterTimesOptions& options = {});

  // Any collective but an all-to-all, an all-to-all-v and a barrier. Takes some nanoseconds; any thread. In
  // chunks, the first call for a size makes plans, some hundred microseconds, for sizes four to an octave;
  // between these, times are linear. ConfigError for negative bytes.
  [[nodiscard]] double seconds(Collective collective, std::int64_t bytes) const;
  [[nodiscard]] ChosenTime choose(Collective collective, std::int64_t bytes) const;

 private:
  [[nodiscard]] const AlgorithmTime& fastest(Collective collective, std::int64_t bytes) const;
  [[nodiscard]] bool goes_in_chunks(Collective collective, std::int64_t bytes) const;

  // The lower start-up first, then the fewer seconds a byte; none is worse than another in both.
  std::vector<AlgorithmTime> halves_;  // reduce-scatter, all-gather
  std::vector<AlgorithmTime> all_reduce_;
  std::vector<AlgorithmTime> broadcast_;        // and reduce
  std::shared_ptr<const ChunkSeconds> chunks_;  // null where nothing goes in chunks
};

// A node is a group of the innermost dimension, if there are others: on a cluster of one dimension ranks have
// a link of their own, and share nothing. The same algorithms are chosen from, as far as the options leave a
// choice; one that is asked for by dimension goes by dimension.
CollectiveTimes times_on(const Cluster& cluster, const ClusterTimesOptions& options = {});

}  // namespace dear::cost
