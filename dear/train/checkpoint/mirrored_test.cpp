// Checkpoints in folders of hosts, of which each has the shards of another one, too.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/checkpoint/testing/job.h"

namespace dear::mirrored_test {
namespace {

namespace fs = std::filesystem;
using checkpoint::testing::Folder;
using checkpoint::testing::Job;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using train::testing::message_of;
using train::testing::run_all;

// Two ranks on each host.
class Mirrored : public ::testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] std::string host(int number) const { return folder_.path(fmt::format("host{}", number)); }
  [[nodiscard]] CheckpointsOptions options(int rank, int keep = 2) const {
    return {.directory = host(rank / 2),
            .keep = keep,
            .form = CheckpointForm::a_shard_of_each_rank,
            .asynchronous = GetParam(),
            .mirrored = true};
  }
  void train_and_save(int ranks, int steps, int keep = 2) {
    run_all(ranks, [&](int rank, Group group) {
      Job job(group);
      Checkpoints checkpoints(*job.parallel, options(rank, keep));
      EXPECT_FALSE(checkpoints.resume());
      for (int step = 1; step <= steps; ++step) {
        job.step();
        checkpoints.save({.step = step});
      }
      checkpoints.wait();
    });
  }
  [[nodiscard]] std::vector<std::string> files_of(int number) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(host(number)))
      if (entry.is_regular_file() && entry.path().extension() == ".pt")
        found.push_back(entry.path().parent_path().filename().string() + "/" +
                        entry.path().filename().string().substr(9));
    std::sort(found.begin(), found.end());
    return found;
  }
  Folder folder_;
};
INSTANTIATE_TEST_SUITE_P(Checkpoints, Mirrored, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Later" : "AtOnce"; });

TEST_P(Mirrored, SurviveTheLossOfAHost) {
  train_and_save(6, 3);
  EXPECT_THAT(files_of(1), ElementsAre("step-00000002/00000-of-00006.pt", "step-00000002/00001-of-00006.pt",
                                       "step-00000002/00002-of-00006.pt", "step-00000002/00003-of-00006.pt",
                                       "step-00000003/00000-of-00006.pt", "step-00000003/00001-of-00006.pt",
                                       "step-00000003/00002-of-00006.pt", "step-00000003/00003-of-00006.pt"));
  std::string uninterrupted;
  run_all(6, [&](int rank, Group group) {
    Job job(group);
    job.steps(5);
    const std::string digest = job.digest();
    if (rank == 0) uninterrupted = digest;
  });
  for (const int lost : {0, 2}) {
    fs::remove_all(host(lost));
    run_all(6, [&](int rank, Group group) {
      Job job(group);
      Checkpoints checkpoints(*job.parallel, options(rank));
      EXPECT_EQ(checkpoints.resume().value().step, 3);
      job.taken = 3;
      job.steps(2);
      EXPECT_EQ(job.digest(), uninterrupted);
    });
  }
}

TEST_P(Mirrored, GoOnOnFewerHosts) {
  train_and_save(6, 2, 1);
  fs::remove_all(host(1));
  fs::rename(host(2), host(1));
  for (int again = 0; again < 2; ++again)
    run_all(4, [&](int rank, Group group) {
      Job job(group);
      Checkpoints checkpoints(*job.parallel, options(rank, 1));
      EXPECT_EQ(checkpoints.resume().value().step, 2 + again);
      job.step();
      checkpoints.save({.step = 3 + again});
      checkpoints.wait();
    });
  EXPECT_EQ(files_of(0).size(), 4u);
}

TEST_P(Mirrored, DoNotBeginAnewWhereTooManyHostsAreLost) {
  train_and_save(6, 2);
  fs::remove_all(host(1));
  fs::remove_all(host(2));
  run_all(6, [&](int rank, Group group) {
    Job job(group);
    Checkpoints checkpoints(*job.parallel, options(rank));
    EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(checkpoints.resume()); }),
                HasSubstr("step-00000001"));
  });
}

TEST_P(Mirrored, SayWhichHostCannotWrite) {
  std::ofstream(host(1)) << "a file";
  run_all(4, [&](int rank, Group group) {
    Job job(group);
    EXPECT_THAT(message_of<ConfigError>([&] { Checkpoints(*job.parallel, options(rank)); }),
                HasSubstr("rank 2"));
  });
}

TEST(MirroredCheckpoints, AreInShards) {
  const Folder folder;
  run_all(2, [&](int, Group group) {
    Job job(group);
    EXPECT_THAT(message_of<ConfigError>([&] {
                  Checkpoints(*job.parallel, {.directory = folder.path("saved"), .mirrored = true});
                }),
                HasSubstr("a_shard_of_each_rank"));
  });
}

}  // namespace
}  // namespace dear::mirrored_test
