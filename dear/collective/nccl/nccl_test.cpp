#include "dear/collective/nccl/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/error.h"
#include "dear/collective/nccl/arrangement.h"
#include "dear/collective/shard.h"

namespace dear::collective::nccl_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string config_error_of(const NcclOptions& options) {
  try {
    make_nccl(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Nccl, ShardsAreEqualExactlyWhereNcclsWouldBe) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::u8}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (std::int64_t count = 0; count < 1200; ++count) {
        const auto equal = equal_shards(count, dtype, ranks);
        for (int rank = 0; rank < ranks; ++rank) {
          const Range shard = shard_of(count, dtype, ranks, rank);
          if (equal) {
            ASSERT_EQ(shard, (Range{rank * *equal, (rank + 1) * *equal})) << count << " over " << ranks;
          }
        }
        const Range last = shard_of(count, dtype, ranks, ranks - 1);
        ASSERT_EQ(equal.has_value(), last.count() == shard_of(count, dtype, ranks, 0).count());
      }
    }
  }
}

TEST(Nccl, EveryFaultHasARemedy) {
  for (const NcclFault fault : {NcclFault::cuda, NcclFault::system, NcclFault::internal, NcclFault::argument,
                                NcclFault::usage, NcclFault::remote, NcclFault::other}) {
    EXPECT_NE(remedy_for(fault), "");
  }
  EXPECT_THAT(remedy_for(NcclFault::remote), HasSubstr("peer"));
}

TEST(Nccl, RefusesRanksThatCannotBe) {
  EXPECT_THAT(config_error_of({.rank = 2, .size = 2}), HasSubstr("no rank 2 among 2"));
  EXPECT_THAT(config_error_of({.rank = 0, .size = 2}), HasSubstr("NcclOptions::exchange"));
}

// On every machine: no driver, no such device, or no module is a sentence and not a crash.
TEST(Nccl, SaysWhatIsMissing) {
  if (const std::string missing = nccl_missing(); !missing.empty()) {
    EXPECT_EQ(config_error_of({}), missing);
    return;
  }
  EXPECT_THAT(config_error_of({.device = 1'000}),
              AllOf(HasSubstr("rank 0"), HasSubstr("CUDA device 1000"), HasSubstr("nvidia-smi")));
}

}  // namespace
}  // namespace dear::collective::nccl_test
