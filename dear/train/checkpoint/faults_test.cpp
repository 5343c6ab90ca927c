// Checkpoints while calls of files go wrong, drawn by a seed: dear/base/os/testing/faults.h.

#include "dear/base/os/testing/faults.h"

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/checkpoint/testing/job.h"
#include "dear/train/checkpoint/testing/ways.h"

namespace dear::checkpoint_faults_test {
namespace {

namespace fs = std::filesystem;
using checkpoint::testing::Folder;
using checkpoint::testing::Job;
using checkpoint::testing::Way;
using os::testing::faults_happened;
using os::testing::plan_faults;
using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::message_of;
using train::testing::run_all;

constexpr int kRanks = 2, kSeeds = 10;
constexpr int kSteps = 4;
constexpr const char* kNone = "no such error";  // message_of()

class Faulty : public ::testing::TestWithParam<Way> {
 protected:
  // Digests after each step of undisturbed training.
  static const std::array<std::string, kSteps + 1>& digests() {
    static const auto kDigests = [] {
      std::array<std::string, kSteps + 1> all;
      run_all(kRanks, [&](int rank, Group group) {
        Job job(group);
        for (std::size_t step = 0; step <= kSteps; ++step) {
          if (step > 0) job.step();
          const std::string digest = job.digest();
          if (rank == 0) all[step] = digest;
        }
      });
      return all;
    }();
    return kDigests;
  }
  ~Faulty() override { plan_faults(""); }
  [[nodiscard]] static CheckpointsOptions options(const Folder& folder) {
    return {.directory = folder.path(), .form = GetParam().form, .asynchronous = GetParam().asynchronous};
  }
  static void plan(const Folder& folder, const std::string& rule, int seed) {
    plan_faults(fmt::format("{} seed={} path={}", rule, seed, folder.path()));
  }
  static void save(Checkpoints& checkpoints, std::int64_t step) {
    checkpoints.save({.step = step});
    checkpoints.wait();
  }
  // Puts the newest back, and says whether it is what it says it is.
  static std::int64_t resume(Job& job, Checkpoints& checkpoints) {
    const std::optional<Position> position = checkpoints.resume();
    if (!position) return -1;
    job.taken = position->step;
    EXPECT_EQ(job.digest(), digests()[static_cast<std::size_t>(position->step)]);
    return position->step;
  }
};
INSTANTIATE_TEST_SUITE_P(Checkpoints, Faulty, ::testing::ValuesIn(checkpoint::testing::kWays),
                         [](const auto& info) { return info.param.name; });

TEST_P(Faulty, AreWholeOrOneErrorOnEveryRankAndTheOneBefore) {
  int saved = 0, refused = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    for (const char* fault : {"EIO", "ENOSPC"}) {
      SCOPED_TRACE(fmt::format("{}, seed {}", fault, seed));
      const Folder folder;
      run_all(kRanks, [&](int rank, Group group) {
        Job job(group);
        Checkpoints checkpoints(*job.parallel, options(folder));
        job.step();
        save(checkpoints, 1);
        if (rank == 0) plan(folder, fmt::format("any:1/150:{}", fault), seed);
        job.step();
        job.parallel->synchronize();
        const std::string message = message_of<ConfigError>([&] { save(checkpoints, 2); });
        const auto messages = all_gather_text(group, message);
        if (rank == 0) {
          plan_faults("");
          ++(message == kNone ? saved : refused);
        }
        static_cast<void>(all_gather_text(group, ""));
        EXPECT_EQ(messages[0] == kNone, messages[1] == kNone) << messages[0] << "; " << messages[1];
        if (message != kNone) {
          EXPECT_THAT(message, AllOf(HasSubstr(folder.path()), HasSubstr("(")));
        }
        const std::int64_t step = resume(job, checkpoints);
        EXPECT_GE(step, message == kNone ? 2 : 1);
        job.steps(static_cast<int>(3 - step));
        EXPECT_EQ(job.digest(), digests()[3]);
        save(checkpoints, 3);
        EXPECT_EQ(resume(job, checkpoints), 3);
      });
      for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
        EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
    }
  }
  EXPECT_GT(saved, 0);
  EXPECT_GT(refused, 0);
}

TEST_P(Faulty, AreWrittenAndReadWhereCallsAreInterruptedOrMoveLess) {
  for (const char* fault : {"EINTR", "short", "slow=0.002"}) {
    SCOPED_TRACE(fault);
    const Folder folder;
    run_all(kRanks, [&](int rank, Group group) {
      Job job(group);
      if (rank == 0) plan(folder, fmt::format("any:1/3:{}", fault), 1);
      Checkpoints checkpoints(*job.parallel, options(folder));
      for (int step = 1; step <= 3; ++step) {
        job.step();
        save(checkpoints, step);
      }
      EXPECT_EQ(resume(job, checkpoints), 3);
      job.step();
      EXPECT_EQ(job.digest(), digests()[4]);
      if (rank == 0) {
        EXPECT_GT(faults_happened(), 3);
      }
    });
    plan_faults("");
  }
}

TEST_P(Faulty, AreReadWholeOrRefusedAndNeverTakenForNone) {
  const Folder folder;
  run_all(kRanks, [&](int, Group group) {
    Job job(group);
    Checkpoints checkpoints(*job.parallel, options(folder));
    for (int step = 1; step <= 2; ++step) {
      job.step();
      save(checkpoints, step);
    }
  });
  int read = 0, refused = 0, ended = 0;
  for (int seed = 0; seed < 4 * kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    run_all(kRanks, [&](int rank, Group group) {
      Job job(group);
      Checkpoints checkpoints(*job.parallel, options(folder));
      if (rank == 0) plan(folder, "any:1/150:EIO", seed);
      static_cast<void>(all_gather_text(group, ""));
      std::int64_t step = -1;
      std::string message;
      try {
        message = message_of<ConfigError>([&] { step = resume(job, checkpoints); });
      } catch (const TransportError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0: "), HasSubstr(folder.path()),
                                        HasSubstr("the training is half put back")));
        if (rank == 0) {
          plan_faults("");
          ++ended;
        }
        return;
      }
      const auto messages = all_gather_text(group, message);
      if (rank == 0) {
        plan_faults("");
        ++(message == kNone ? read : refused);
      }
      EXPECT_EQ(messages[0] == kNone, messages[1] == kNone) << messages[0] << "; " << messages[1];
      if (message == kNone) {
        EXPECT_GE(step, 1);
      } else {
        EXPECT_THAT(message, HasSubstr(folder.path()));
      }
    });
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(refused + ended, 0);
}

}  // namespace
}  // namespace dear::checkpoint_faults_test
