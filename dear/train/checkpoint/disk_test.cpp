// Checkpoints on a disk that is full, or cannot be written: a small one of the test's own, in memory.

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/checkpoint/testing/job.h"
#include "dear/train/checkpoint/testing/ways.h"

namespace dear::disk_test {
namespace {

using checkpoint::testing::Folder;
using checkpoint::testing::Job;
using checkpoint::testing::Way;
using ::testing::AllOf;
using ::testing::HasSubstr;
using train::testing::message_of;
using train::testing::run_all;

constexpr const char* kSize = "size=8m";

// Lets this process mount what only it sees. Returns why it may not, or "".
std::string enter_namespace() {
  if (::unshare(CLONE_NEWNS) != 0) {
    const std::string user = fmt::format("0 {} 1", ::getuid()), group = fmt::format("0 {} 1", ::getgid());
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
      return with_errno("no mount namespace can be made", errno);
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << user;
    std::ofstream("/proc/self/gid_map") << group;
  }
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return with_errno("mounts cannot be made private", errno);
  return "";
}

class Disk {
 public:
  Disk() {
    static const std::string kWhyNot = enter_namespace();
    why_not_ = kWhyNot;
    if (why_not_.empty() && ::mount("none", folder_.path().c_str(), "tmpfs", 0, kSize) != 0)
      why_not_ = with_errno("a tmpfs cannot be mounted", errno);
  }
  ~Disk() {
    if (why_not_.empty()) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }

  // Leaves room for more than a tensor, and less than a checkpoint.
  void fill() const {
    const int file = ::open(path("filler").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    const std::string block(4096, 'x');
    off_t bytes = 0;
    for (ssize_t written = 0; (written = ::write(file, block.data(), block.size())) > 0;) bytes += written;
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_EQ(::ftruncate(file, bytes - 300'000), 0);
    ::close(file);
  }
  void empty() const { EXPECT_EQ(::unlink(path("filler").c_str()), 0); }
  void write_protect(bool on) const {
    constexpr unsigned long kReadOnly = MS_RDONLY;
    EXPECT_EQ(::mount("none", folder_.path().c_str(), "tmpfs", MS_REMOUNT | (on ? kReadOnly : 0), kSize), 0)
        << with_errno("remount", errno);
  }

 private:
  Folder folder_;
  std::string why_not_;
};

class OnADisk : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!disk_.why_not().empty()) GTEST_SKIP() << disk_.why_not();
    run_all(2, [&](int rank, Group group) {
      Job job(group);
      job.steps(4);
      const std::string digest = job.digest();
      if (rank == 0) uninterrupted_ = digest;
    });
  }
  // `spoil` and `mend` are called by rank 0; the error has these words.
  void train(const std::function<void()>& spoil, const std::function<void()>& mend, const std::string& reason,
             const std::string& remedy) const {
    run_all(2, [&](int rank, Group group) {
      Job job(group);
      Checkpoints checkpoints(*job.parallel, {.directory = disk_.path("saved"),
                                              .keep = 1,
                                              .form = GetParam().form,
                                              .asynchronous = GetParam().asynchronous});
      job.steps(2);
      checkpoints.save({.step = 2});
      checkpoints.wait();
      if (rank == 0) spoil();
      job.step();
      const std::string message = message_of<ConfigError>([&] {
        checkpoints.save({.step = 3});
        checkpoints.wait();
      });
      EXPECT_THAT(message, AllOf(HasSubstr("rank "), HasSubstr(disk_.path("saved/step-00000003")),
                                 HasSubstr(reason), HasSubstr(remedy)));
      job.step();
      EXPECT_EQ(job.digest(), uninterrupted_);
      EXPECT_EQ(checkpoints.resume().value().step, 2);
      job.taken = 2;
      job.steps(2);
      EXPECT_EQ(job.digest(), uninterrupted_);
      if (rank == 0) mend();
      job.parallel->synchronize();
      checkpoints.save({.step = 4});
      checkpoints.wait();
      EXPECT_EQ(checkpoints.resume().value().step, 4);
    });
  }
  Disk disk_;
  std::string uninterrupted_;
};
INSTANTIATE_TEST_SUITE_P(Checkpoints, OnADisk, ::testing::ValuesIn(checkpoint::testing::kWays),
                         [](const auto& info) { return info.param.name; });

TEST_P(OnADisk, ThatIsFullAreOneErrorAndThePreviousOneLoads) {
  train([&] { disk_.fill(); }, [&] { disk_.empty(); }, "No space left", "free some space");
}

TEST_P(OnADisk, ThatIsWriteProtectedAreOneErrorAndThePreviousOneLoads) {
  train([&] { disk_.write_protect(true); }, [&] { disk_.write_protect(false); }, "Read-only file system",
        "(c");
}

}  // namespace
}  // namespace dear::disk_test
