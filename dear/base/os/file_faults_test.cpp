// Files at each of whose calls something goes wrong.

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/os/remove_tree.h"
#include "dear/base/os/testing/faults.h"
#include "dear/base/vocabulary/error.h"

namespace dear::os::file_faults_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using testing::faults_happened;
using ::testing::HasSubstr;
using testing::plan_faults;

struct Way {
  const char* name;
  std::function<void(const std::string&, const std::string&)> write;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

// The calls of a file that has content and is to have another.
class Files : public ::testing::TestWithParam<Way> {
 protected:
  Files() {
    std::string folder = fs::temp_directory_path() / "dear-file-faults-XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  ~Files() override {
    plan_faults("");
    static_cast<void>(remove_tree(folder_));
  }
  // Before each call of such a write in turn, `act(n)` has been called; it returns whether there was an n-th
  // call.
  void at_each_call(const std::function<bool(int)>& act) const {
    constexpr int kFewest = 4, kMost = 60;
    int calls = 0;
    for (bool more = true; more && calls < kMost; calls += more ? 1 : 0) {
      write_file_atomically(path(), kOld);
      more = act(calls + 1);
      plan_faults("");
    }
    EXPECT_GE(calls, kFewest);
    EXPECT_LT(calls, kMost);
  }
  void plan(const std::string& rule) const { plan_faults(rule + " path=" + folder_); }
  [[nodiscard]] std::string path() const { return folder_ + "/file"; }
  [[nodiscard]] std::string found() const { return read_file(path()); }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_)) all.push_back(entry.path().filename());
    return all;
  }
  void write() const { GetParam().write(path(), kNew); }
  // Does this in a child, which has no other thread, and returns when it has ended or stopped.
  static std::pair<pid_t, int> in_a_child(const std::function<void()>& act) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        act();
        ::_exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ::_exit(1);
      }
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
    return {child, status};
  }

  const std::string kOld = std::string(10'000, 'o');
  const std::string kNew = std::string(100'000, 'n');
  std::string folder_;
};
INSTANTIATE_TEST_SUITE_P(AtEachCall, Files,
                         ::testing::Values(Way{"AtOnce",
                                               [](const std::string& path, const std::string& content) {
                                                 write_file_atomically(path, content);
                                               }},
                                           Way{"PieceByPiece",
                                               [](const std::string& path, const std::string& content) {
                                                 AtomicFile file(path);
                                                 const auto bytes = std::as_bytes(std::span(content));
                                                 file.write(bytes.first(bytes.size() / 2));
                                                 file.write(bytes.subspan(bytes.size() / 2));
                                                 file.commit();
                                               }}),
                         [](const auto& test) { return test.param.name; });

TEST_P(Files, ThatCannotBeWrittenAreOneErrorAndTheFileBefore) {
  for (const auto& [fault, reason] : {std::pair{"EIO", "Input/output error"}, {"ENOSPC", "No space left"}}) {
    at_each_call([&, fault = fault, reason = reason](int n) {
      plan("any:" + std::to_string(n) + ":" + fault);
      bool written = true;
      try {
        write();
      } catch (const ConfigError& error) {
        written = false;
        EXPECT_THAT(error.what(), AllOf(HasSubstr(path()), HasSubstr(reason), HasSubstr("(")));
      }
      const bool happened = faults_happened() > 0;
      plan_faults("");
      EXPECT_EQ(found(), written ? kNew : kOld) << fault << " at call " << n;
      EXPECT_THAT(names(), ElementsAre("file")) << fault << " at call " << n;
      return happened;
    });
  }
}

TEST_P(Files, AreWrittenWhereCallsAreInterruptedOrMoveLess) {
  for (const std::string fault : {"EINTR", "short", "fork"}) {
    for (const bool once : {true, false}) {
      const auto act = [&](const std::string& when) {
        plan(when);
        write();
        const bool happened = faults_happened() > 0;
        plan_faults("");
        EXPECT_EQ(found(), kNew) << when;
        EXPECT_THAT(names(), ElementsAre("file")) << when;
        return happened;
      };
      if (!once) {
        write_file_atomically(path(), kOld);
        for (int seed = 0; seed < 20; ++seed) act("any:1/3:" + fault + " seed=" + std::to_string(seed));
      } else if (fault != "short") {
        at_each_call([&](int n) { return act("any:" + std::to_string(n) + ":" + fault); });
      }
    }
  }
}

TEST_P(Files, OfAKilledProcessAreTheOldOrTheNewOne) {
  at_each_call([&](int n) {
    const auto [child, status] = in_a_child([&] {
      plan("any:" + std::to_string(n) + ":kill");
      write();
    });
    EXPECT_THAT(found(), AnyOf(kOld, kNew));
    remove_abandoned_files(folder_);
    EXPECT_THAT(names(), ElementsAre("file"));
    return WIFSIGNALED(status);
  });
}

TEST_P(Files, OfAStoppedProcessAreOldUntilItGoesOn) {
  at_each_call([&](int n) {
    const auto [child, status] = in_a_child([&] {
      plan("any:" + std::to_string(n) + ":stop");
      write();
    });
    const bool stopped = WIFSTOPPED(status);
    EXPECT_THAT(found(), AnyOf(kOld, kNew));
    remove_abandoned_files(folder_);
    if (stopped) {
      ::kill(child, SIGCONT);
      int end = 0;
      EXPECT_EQ(::waitpid(child, &end, 0), child);
      EXPECT_EQ(end, 0);
    }
    EXPECT_EQ(found(), kNew);
    EXPECT_THAT(names(), ElementsAre("file"));
    return stopped;
  });
}

TEST_P(Files, AreReadWholeOrRefused) {
  write();
  for (const std::string fault : {"EINTR", "short", "EIO"}) {
    int refused = 0;
    for (int seed = 0; seed < 40; ++seed) {
      plan("any:1/4:" + fault + " seed=" + std::to_string(seed));
      try {
        EXPECT_EQ(found(), kNew) << fault << ", seed " << seed;
      } catch (const ConfigError& error) {
        ++refused;
        EXPECT_THAT(error.what(), AllOf(HasSubstr(path()), HasSubstr("Input/output error")));
      }
    }
    EXPECT_EQ(refused > 0, fault == "EIO");
  }
}

// ---- The faults themselves

TEST(Clock, JumpsEitherWayAndTheSteadyOneStays) {
  const auto begin = std::chrono::steady_clock::now();
  const std::time_t before = std::time(nullptr);
  bool ahead = false, back = false;
  plan_faults("clock:1/2:jump=7200 seed=3");
  for (int i = 0; i < 50; ++i) {
    const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    ahead = ahead || now > before + 7000;
    back = back || now < before - 7000;
  }
  EXPECT_TRUE(ahead && back);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::hours(1));
  plan_faults("");
}

TEST(Plans, AreTheSameForTheSameSeed) {
  const auto drawn = [](int seed) {
    std::string faults;
    plan_faults("open:1/3:EIO path=/dev/null seed=" + std::to_string(seed));
    for (int i = 0; i < 100; ++i) {
      const int before = faults_happened();
      const FileDescriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      EXPECT_EQ(file.is_open(), faults_happened() == before);
      faults += file.is_open() ? '.' : 'x';
    }
    plan_faults("");
    return faults;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
  EXPECT_THAT(drawn(1), AllOf(HasSubstr("x"), HasSubstr(".")));
}

}  // namespace
}  // namespace dear::os::file_faults_test
