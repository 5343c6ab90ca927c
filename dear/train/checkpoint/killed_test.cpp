// Ranks that save shards of one step again and again, and are killed at any moment: one of the sets that were
// there is whole, and resumed from.

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <poll.h>
#include <random>
#include <string>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dear/base/os/file_descriptor.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/checkpoint/testing/job.h"

namespace dear::killed_test {
namespace {

namespace fs = std::filesystem;
using checkpoint::testing::Folder;
using checkpoint::testing::Job;
using train::testing::run_all;

constexpr int kRanks = 2;
constexpr std::int64_t kStep = 5;

// Goes on from what is there, and saves it as often as it may. Every parameter is the number of the save.
std::int64_t save(const std::string& folder, std::int64_t times, const std::function<void()>& saved = {}) {
  std::int64_t number = 0;
  run_all(kRanks, [&](int rank, Group group) {
    Job job(group);
    Checkpoints checkpoints(*job.parallel,
                            {.directory = folder, .form = CheckpointForm::a_shard_of_each_rank});
    const std::optional<Position> position = checkpoints.resume();
    const std::int64_t first = position ? std::stoll(position->more.at("number")) : 0;
    if (position) {
      EXPECT_EQ(position->step, kStep);
      for (const torch::Tensor& parameter : job.net->parameters())
        EXPECT_TRUE(parameter.eq(static_cast<double>(first)).all().item<bool>());
    }
    for (std::int64_t i = 1; i <= times; ++i) {
      job.step();
      job.parallel->synchronize();
      const torch::NoGradGuard no_grad;
      for (torch::Tensor parameter : job.net->parameters()) parameter.fill_(static_cast<double>(first + i));
      checkpoints.save({.step = kStep, .more = {{"number", std::to_string(first + i)}}});
      if (rank == 0 && saved) saved();
    }
    if (rank == 0) number = first;
  });
  return number;
}

// The program that is killed: in the folder in which it runs. It writes a byte for each save that has ended.
TEST(KilledRanks, DISABLED_SaveForEver) {
  save(".", 1'000'000, [] { ASSERT_EQ(::write(STDOUT_FILENO, "\n", 1), 1); });
}

class Kills : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(KilledRanks, Kills, ::testing::Values(6, 50), ::testing::PrintToStringParamName());

TEST_P(Kills, AtRandomMomentsOfASaveOfTheSameStepLeaveAWholeOne) {
  const Folder folder;
  save(folder.path(), 1);
  const std::string step = folder.path("step-00000005");
  std::mt19937 random(1);
  std::int64_t newest = 1;
  for (int kill = 0; kill < GetParam(); ++kill) {
    const os::FileDescriptor changes(::inotify_init1(IN_CLOEXEC));
    ASSERT_GE(::inotify_add_watch(changes.get(), step.c_str(),
                                  IN_CREATE | IN_MODIFY | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE),
              0);
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const std::string program = fs::read_symlink("/proc/self/exe").string();
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      // It is this one case, whichever share of the cases the process here runs.
      if (::chdir(folder.path().c_str()) == 0)
        ::execlp("env", "env", "-u", "GTEST_TOTAL_SHARDS", "-u", "GTEST_SHARD_INDEX", program.c_str(),
                 "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                 "--gtest_filter=KilledRanks.DISABLED_SaveForEver", nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    // A change in the folder is a moment.
    for (auto moments = static_cast<int>(random() % 60); moments >= 0;) {
      pollfd changed{.fd = changes.get(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(::poll(&changed, 1, 60'000), 1) << "the program that saves did not begin";
      alignas(inotify_event) char events[4096];
      const ssize_t bytes = ::read(changes.get(), events, sizeof events);
      ASSERT_GT(bytes, 0);
      for (ssize_t at = 0; at < bytes; --moments)
        at += static_cast<ssize_t>(sizeof(inotify_event) +
                                   reinterpret_cast<const inotify_event*>(events + at)->len);
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    std::int64_t ended = 0;
    char byte = 0;
    while (::read(ends[0], &byte, 1) == 1) ended += byte == '\n' ? 1 : 0;
    ::close(ends[0]);
    // The next program finds it as this one does.
    const std::int64_t found = save(folder.path(), 0);
    EXPECT_GE(found, newest + std::max<std::int64_t>(ended - 1, 0)) << "of kill " << kill;
    newest = found;
  }
  save(folder.path(), 1);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(step)) {
    EXPECT_EQ(entry.path().extension(), ".pt");
    ++files;
  }
  EXPECT_EQ(files, kRanks);
}

}  // namespace
}  // namespace dear::killed_test
