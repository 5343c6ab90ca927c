#pragma once

#include <cstdint>
#include <vector>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/dtype.h"
#include "dear/base/vocabulary/reduction.h"
#include "dear/comm/group/group.h"

// One suite for every backend: each collective, element type and awkward count, by value. Every rank of a
// group calls the same check with the same options, wherever it runs (a thread, a child process, under
// mpirun); what is wrong is a GoogleTest failure on the rank that sees it, and the ranks stay in step.
namespace dear::comm::testing {

// In which order a backend adds up contributions.
enum class Order : std::uint8_t {
  ranks,  // rank 0's first, then rank 1's, ...: one result, to the bit, wherever it is computed
  fixed   // some other, the same whenever the same is asked
};

// Types and reductions differ in arithmetic alone, which has tests of its own (reduce_test).
struct ConformanceOptions {
  std::vector<DType> dtypes =
      dear::testing::kSanitizer
          ? std::vector{DType::f32, DType::bf16}
          : std::vector{DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64, DType::u8};
  std::vector<Reduction> reductions = dear::testing::kSanitizer
                                          ? std::vector{Reduction::sum}
                                          : std::vector{Reduction::sum, Reduction::average, Reduction::max,
                                                        Reduction::min, Reduction::bitwise_or};
  // Beside 0, 1, P - 1, P and P + 1.
  std::vector<std::int64_t> counts = {17, 1000, 20'011};
  Order order = Order::ranks;
};

// Reduce-scatter and all-reduce, with every reduction.
void check_reductions(Group& group, const ConformanceOptions& options = {});
// All-gather, broadcast from every root, all-to-all, barrier, and the next one.
void check_movements(Group& group, const ConformanceOptions& options = {});
// All-to-all-v of several shapes: random counts, nothing at all, everything, all to one rank, one to all.
void check_all_to_all_v(const Group& group, const ConformanceOptions& options = {});
// Reduce-scatter, all-gather and all-reduce of unequal shards; ConfigErrors where the group has none.
void check_unequal_shards(Group& group, const ConformanceOptions& options = {});
// Many at once, of several kinds and sizes, waited for in another order than issued.
void check_in_flight(Group& group, const ConformanceOptions& options = {});
// The sums of numbers that cannot be added without rounding.
void check_rounding(Group& group, const ConformanceOptions& options = {});

// Rank 0 comes late to a collective, namely once every thread of the other ranks was found asleep many times:
// a backend that spins while it waits ends with its own TimeoutError. For a group of two or more on one host.
void check_waiting(Group& group);

// One memory for all: [Note: shared buffers]. Of a group that shares memory.
void check_shared_buffers(Group& group, const ConformanceOptions& options = {});

// All but the last two.
void check_group(Group& group, const ConformanceOptions& options = {});

// Duplicates and splits it, and parts of it: every part works, beside the group and on its own.
void check_parts(const Group& group);

}  // namespace dear::comm::testing
