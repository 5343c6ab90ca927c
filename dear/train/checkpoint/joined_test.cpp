// Checkpoints in a join, whose ranks without data could not follow.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/checkpoint/testing/job.h"
#include "dear/train/data_parallel/join.h"

namespace dear::joined_test {
namespace {

using checkpoint::testing::Folder;
using checkpoint::testing::Job;
using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::message_of;
using train::testing::run_all;

TEST(CheckpointsInAJoin, AreRefusedAtOnceAndTheJoinGoesOn) {
  const Folder folder;
  run_all(2, [&](int rank, Group group) {
    Job job(group);
    Checkpoints checkpoints(*job.parallel, {.directory = folder.path("saved"), .asynchronous = true});
    job.steps(2);
    checkpoints.save({.step = 2});
    Join join(*job.parallel);
    if (rank == 0) {  // the other has no data
      job.step();
      const auto refused =
          AllOf(HasSubstr("rank 0"), HasSubstr("checkpoint"), HasSubstr("between two joins"));
      EXPECT_THAT(message_of<ConfigError>([&] { checkpoints.save({.step = 3}); }), refused);
      EXPECT_THAT(message_of<ConfigError>([&] { checkpoints.wait(); }), refused);
      EXPECT_THAT(message_of<ConfigError>([&] { checkpoints.resume(); }), refused);
      EXPECT_THAT(message_of<ConfigError>([&] { save_checkpoint(*job.parallel, folder.path("x.pt"), {}); }),
                  refused);
      EXPECT_THAT(message_of<ConfigError>([&] { load_checkpoint(*job.parallel, folder.path("x.pt")); }),
                  refused);
      EXPECT_THAT(
          message_of<ConfigError>([&] { Checkpoints(*job.parallel, {.directory = folder.path("x")}); }),
          refused);
      job.step();
    }
    join.end();
    EXPECT_EQ(join.shadowed(), rank == 0 ? 0 : 2);
    checkpoints.wait();
    EXPECT_EQ(checkpoints.resume().value().step, 2);
    job.steps(1);
    checkpoints.save({.step = 5});
    checkpoints.wait();
  });
}

}  // namespace
}  // namespace dear::joined_test
