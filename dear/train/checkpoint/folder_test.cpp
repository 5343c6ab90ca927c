// A folder of checkpoints: of either form, written at once or while training goes on.

#include <csignal>
#include <fstream>
#include <sys/resource.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/remove_tree.h"
#include "dear/base/vocabulary/error.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/checkpoint/testing/job.h"
#include "dear/train/checkpoint/testing/ways.h"

namespace dear::folder_test {
namespace {

namespace fs = std::filesystem;
using checkpoint::testing::Folder;
using checkpoint::testing::Job;
using checkpoint::testing::Way;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using train::testing::message_of;
using train::testing::run_all;

constexpr int kRanks = 4;

class EveryWay : public ::testing::TestWithParam<Way> {
 protected:
  [[nodiscard]] CheckpointsOptions options() const {
    return {
        .directory = folder_.path("saved"), .form = GetParam().form, .asynchronous = GetParam().asynchronous};
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path("saved")))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  // Saves after each of 5 steps; the digests after steps.
  std::vector<std::string> train_and_save(const std::string& policy = "dear") const {
    std::vector<std::string> digests(6);
    run_all(kRanks, [&](int rank, Group group) {
      Job job(group, {.policy = policy, .buckets = given(Fusion::parse("64KiB")), .profile_steps = 1});
      Checkpoints checkpoints(*job.parallel, options());
      EXPECT_FALSE(checkpoints.resume());
      for (int step = 1; step <= 5; ++step) {
        job.step();
        checkpoints.save({.step = step, .more = {{"epoch", "7"}}});
        const std::string digest = job.digest();
        if (rank == 0) digests[static_cast<std::size_t>(step)] = digest;
      }
      checkpoints.wait();
    });
    return digests;
  }
  Folder folder_;
};
INSTANTIATE_TEST_SUITE_P(Checkpoints, EveryWay, ::testing::ValuesIn(checkpoint::testing::kWays),
                         [](const auto& info) { return info.param.name; });

TEST_P(EveryWay, KeepsTheNewestAndGoesOnToTheBit) {
  train_and_save();
  const std::string ending = GetParam().form == CheckpointForm::one_file ? ".pt" : "";
  EXPECT_THAT(names(), ElementsAre("step-00000004" + ending, "step-00000005" + ending));
  std::string uninterrupted;
  run_all(kRanks, [&](int rank, Group group) {
    Job job(group);
    job.steps(8);
    const std::string digest = job.digest();
    if (rank == 0) uninterrupted = digest;
  });
  run_all(kRanks, [&](int, Group group) {
    Job job(group);
    Checkpoints checkpoints(*job.parallel, options());
    const std::optional<Position> position = checkpoints.resume();
    ASSERT_TRUE(position);
    EXPECT_EQ(position->step, 5);
    EXPECT_EQ(position->more.at("epoch"), "7");
    job.taken = 5;
    job.steps(3);
    EXPECT_EQ(job.digest(), uninterrupted);
  });
}

TEST_P(EveryWay, GoesOnOnOtherRanksPoliciesAndBuckets) {
  for (const char* saved : {"dear", "serial"}) {
    train_and_save(saved);
    std::vector<torch::Tensor> expected;
    run_all(kRanks, [&](int rank, Group group) {
      Job job(group);
      job.steps(8);
      job.parallel->synchronize();
      if (rank != 0) return;
      for (const torch::Tensor& tensor : job.net->parameters()) expected.push_back(tensor.detach().clone());
    });
    for (const auto& [ranks, policy, fusion] :
         {std::tuple(3, "dear", "layer"), std::tuple(1, "dear", "all"), std::tuple(2, "wfbp", "16KiB")}) {
      run_all(ranks, [&, policy = policy, fusion = fusion](int, Group group) {
        Job job(group, {.policy = policy, .buckets = given(Fusion::parse(fusion))});
        job.taken = Checkpoints(*job.parallel, options()).resume().value().step;
        job.steps(3);
        job.parallel->synchronize();
        for (std::size_t i = 0; i < expected.size(); ++i)
          EXPECT_TRUE(job.net->parameters()[i].allclose(expected[i], 1e-4, 1e-6));
      });
    }
    EXPECT_EQ(os::remove_tree(folder_.path("saved")), 0);
  }
}

// The largest file of the newest checkpoint.
fs::path newest_file(const std::string& folder) {
  fs::path newest, file;
  for (const auto& entry : fs::directory_iterator(folder)) newest = std::max(newest, entry.path());
  if (!fs::is_directory(newest)) return newest;
  for (const auto& entry : fs::directory_iterator(newest)) file = std::max(file, entry.path());
  return file;
}

TEST_P(EveryWay, PassesOverWhatIsDamagedOrMissing) {
  train_and_save();
  const auto resumed = [&] {
    std::int64_t step = 0;
    run_all(2, [&](int rank, Group group) {
      Job job(group);
      CheckpointsOptions mine = options();
      std::string said;
      mine.say = [&](const std::string& sentence) { said += sentence; };
      const auto position = Checkpoints(*job.parallel, mine).resume();
      if (rank != 0) return;
      EXPECT_THAT(said, HasSubstr("checkpoint"));
      step = position ? position->step : -1;
    });
    return step;
  };
  {
    std::fstream file(newest_file(folder_.path("saved")), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(2000);
    file << "damage";
  }
  EXPECT_EQ(resumed(), 4);
  if (GetParam().form == CheckpointForm::one_file) return;
  fs::remove(newest_file(folder_.path("saved")));
  EXPECT_EQ(resumed(), 4);
}

TEST_P(EveryWay, OfAFolderThatIsGoneIsAnErrorOnEveryRankAndTrainingGoesOn) {
  run_all(2, [&](int rank, Group group) {
    Job job(group);
    Checkpoints checkpoints(*job.parallel, options());
    job.steps(2);
    job.parallel->synchronize();
    if (rank == 0) {
      EXPECT_EQ(os::remove_tree(folder_.path("saved")), 0);
    }
    job.step();
    const std::string message = message_of<ConfigError>([&] {
      checkpoints.save({.step = 3});
      job.step();
      checkpoints.wait();
    });
    EXPECT_THAT(message, HasSubstr("step-00000003"));
    job.step();
    if (rank == 0) fs::create_directory(folder_.path("saved"));
    job.parallel->synchronize();
    checkpoints.save({.step = 5});
    checkpoints.wait();
    EXPECT_EQ(checkpoints.resume().value().step, 5);
  });
}

// The limit on the size of a file stands for a full disk: both end a write in the middle.
TEST_P(EveryWay, ThatFillTheDiskAreOneErrorOnEveryRankAndTrainingGoesOn) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  std::string alone;
  for (const bool full : {false, true}) {
    run_all(2, [&](int rank, Group group) {
      Job job(group);
      Checkpoints checkpoints(*job.parallel, options());
      job.steps(2);
      job.parallel->synchronize();
      if (rank == 0 && full) {
        rlimit small = before;
        small.rlim_cur = 400'000;  // more than a bucket, less than a file
        ::setrlimit(RLIMIT_FSIZE, &small);
      }
      job.step();
      const std::string message = message_of<ConfigError>([&] {
        checkpoints.save({.step = 3});
        checkpoints.wait();
      });
      EXPECT_THAT(message, HasSubstr(full ? "step-00000003" : "no such error"));
      if (rank == 0) ::setrlimit(RLIMIT_FSIZE, &before);
      job.step();
      const std::string digest = job.digest();
      if (rank == 0 && full) {
        EXPECT_EQ(digest, alone);
      }
      if (rank == 0) alone = digest;
    });
    if (full) continue;
    EXPECT_EQ(os::remove_tree(folder_.path("saved")), 0);
  }
  std::signal(SIGXFSZ, handler);
}

TEST(Checkpoints, HaveAFolderThatNobodyElseWritesInto) {
  const Folder folder;
  run_all(2, [&](int, Group group) {
    Job job(group);
    const Checkpoints first(*job.parallel, {.directory = folder.path("saved")});
    EXPECT_THAT(
        message_of<ConfigError>([&] { Checkpoints(*job.parallel, {.directory = folder.path("saved")}); }),
        HasSubstr("other Checkpoints of this program"));
    EXPECT_THAT(message_of<ConfigError>(
                    [&] { Checkpoints(*job.parallel, {.directory = folder.path("x"), .keep = 0}); }),
                HasSubstr("keep"));
  });
}

}  // namespace
}  // namespace dear::folder_test
