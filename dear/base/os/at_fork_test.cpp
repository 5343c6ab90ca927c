#include "dear/base/os/at_fork.h"

#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dear/base/os/file_descriptor.h"

namespace dear::os::at_fork_test {
namespace {

// A child that lives until this process closes its end of a pipe.
class Child {
 public:
  Child() {
    EXPECT_EQ(::pipe2(pipe_, O_CLOEXEC), 0);
    int runs[2];
    EXPECT_EQ(::pipe2(runs, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(pipe_[1]);
      char byte = 0;
      static_cast<void>(!::write(runs[1], &byte, 1));
      ::_exit(static_cast<int>(::read(pipe_[0], &byte, 1)));
    }
    char byte = 0;
    EXPECT_EQ(::read(runs[0], &byte, 1), 1);
    ::close(runs[0]);
    ::close(runs[1]);
  }
  ~Child() {
    ::close(pipe_[1]);
    ::close(pipe_[0]);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  int pipe_[2] = {-1, -1};
  pid_t pid_ = -1;
};

TEST(NotInChildrenTest, AConnectionEndsThoughAChildLives) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor here(ends[0]);
  FileDescriptor there(ends[1]);
  const NotInChildren kept_out(there.get());
  const Child child;
  there.close();
  char byte = 0;
  EXPECT_EQ(::recv(here.get(), &byte, 1, 0), 0);  // the end of the stream
}

TEST(NotInChildrenTest, ALockEndsThoughAChildLives) {
  FileDescriptor first(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_TRUE(first.is_open());
  const std::string path = "/proc/self/fd/" + std::to_string(first.get());
  const FileDescriptor second(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const NotInChildren kept_out(first.get());
  ASSERT_EQ(::flock(first.get(), LOCK_EX | LOCK_NB), 0);
  const Child child;
  EXPECT_NE(::flock(second.get(), LOCK_EX | LOCK_NB), 0);
  first.close();
  EXPECT_EQ(::flock(second.get(), LOCK_EX | LOCK_NB), 0);
}

TEST(NotInChildrenTest, AnotherFileOfTheSameNumberStays) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor here(ends[0]);
  FileDescriptor there(ends[1]);
  FileDescriptor closed(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const NotInChildren kept_out(closed.get());
  ASSERT_EQ(::dup2(there.get(), closed.get()), closed.get());
  const Child child;
  there.close();
  closed.close();
  char byte = 0;
  EXPECT_LT(::recv(here.get(), &byte, 1, MSG_DONTWAIT), 0);  // the child holds it open
}

}  // namespace
}  // namespace dear::os::at_fork_test
