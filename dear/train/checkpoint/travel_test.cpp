// What travels between ranks when a checkpoint is saved or put back, and what errors call it.

#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/checkpoint/own_state.h"
#include "dear/train/checkpoint/testing/job.h"
#include "dear/train/data_parallel/testing/counting.h"

namespace dear::travel_test {
namespace {

using archive::Value;
using checkpoint::testing::Folder;
using checkpoint::testing::Job;
using ::testing::HasSubstr;
using train::testing::message_of;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

// Collectives of one rank, and bytes in those that join what ranks have together.
struct Counts {
  std::atomic<std::int64_t> collectives{0}, joined_bytes{0}, bytes{0};
};

class Counted : public train::testing::Counting {
 public:
  Counted(std::unique_ptr<Backend> inner, Counts& counts)
      : Counting(std::move(inner), counts.bytes), counts_(counts) {}
  Timing run(const Request& request, Deadline deadline) override {
    ++counts_.collectives;
    if (request.collective == Collective::all_reduce && request.reduction == Reduction::bitwise_or)
      counts_.joined_bytes += request.view.count * size_of(request.view.dtype);
    return Counting::run(request, deadline);
  }

 private:
  Counts& counts_;
};

// Runs the program on ranks of which rank 0's collectives are counted.
void run_counted(int ranks, const std::function<void(Group group, Counts& counts)>& program) {
  Counts counts, others;
  std::vector<Group> groups;
  for (auto& backend : backends::testing::make_shm_threads(ranks))
    groups.emplace_back(std::make_unique<Counted>(std::move(backend), groups.empty() ? counts : others),
                        Group::Options{});
  for (const auto& error :
       run_each(std::move(groups), [&](int, Group group) { program(std::move(group), counts); }))
    EXPECT_EQ(what_of(error), "");
}

TEST(Travel, OnOtherRanksEachReadsWhatItUpdates) {
  const Folder folder;
  const CheckpointsOptions options{.directory = folder.path("saved"),
                                   .form = CheckpointForm::a_shard_of_each_rank};
  run_all(4, [&](int, Group group) {
    Job job(group);
    job.steps(3);
    Checkpoints(*job.parallel, options).save({.step = 3});
  });
  for (const int ranks : {2, 3, 4}) {
    run_counted(ranks, [&](const Group& group, Counts& counts) {
      Job job(group, {.buckets = given(Fusion::parse(ranks == 4 ? "layer" : "64KiB"))});
      job.taken = Checkpoints(*job.parallel, options).resume().value().step;
      group.barrier().wait();
      if (group.rank() == 0) counts.joined_bytes = 0;
      job.step();
      job.parallel->synchronize();
      if (group.rank() == 0) {
        EXPECT_EQ(counts.joined_bytes, 0) << ranks;
      }
    });
  }
}

// Their number depends on neither the number of parameters nor the number of tensors for each.
TEST(Travel, OfWhatCompressionRemembersTakesAFewCollectives) {
  const Folder folder;
  std::int64_t plain = 0;
  for (const char* scheme : {"", "top-k:0.05,ef"}) {
    run_counted(2, [&](const Group& group, Counts& counts) {
      DataParallelOptions options{.buckets = given(Fusion::parse("64KiB"))};
      if (*scheme != 0) options.compression = Compression::parse(scheme);
      Job job(group, options);
      job.steps(2);
      job.parallel->synchronize();
      group.barrier().wait();
      const std::int64_t before = counts.collectives;
      save_checkpoint(*job.parallel, folder.path("saved.pt"), {.step = 2});
      if (group.rank() != 0) return;
      if (*scheme == 0) plain = counts.collectives - before;
      EXPECT_LE(counts.collectives - before, plain + 2);
    });
  }
}

TEST(Travel, IsRefusedWithTheNameOfTheCheckpoint) {
  run_all(1, [](int, const Group& group) {
    Job job(group);
    const train::TrainingState state(*job.parallel);
    Value own;
    own.set("compression", Value(Value::Dict()));
    Value::List of_ranks;
    of_ranks.push_back(std::move(own));
    const Value ranks(std::move(of_ranks));
    EXPECT_THAT(message_of<ConfigError>(
                    [&] { checkpoint::restore_own(&ranks, nullptr, "run1/step-00000003.pt", state, {}); }),
                HasSubstr("run1/step-00000003.pt"));
  });
}

}  // namespace
}  // namespace dear::travel_test
