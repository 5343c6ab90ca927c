#include "dear/base/os/blocked_signals.h"

#include <cerrno>
#include <optional>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dear/base/os/file_descriptor.h"

namespace dear::os::blocked_signals_test {
namespace {

bool is_blocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

// Into a connection whose other end is gone.
void write_in_vain() {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor kept(ends[0]);
  ::close(ends[1]);
  ASSERT_EQ(::write(kept.get(), "x", 1), -1);
  ASSERT_EQ(errno, EPIPE);
}

TEST(BlockedSignals, ABrokenConnectionDoesNotEndTheProcess) {
  ASSERT_FALSE(is_blocked(SIGPIPE));
  {
    const BlockedSignals blocked;
    write_in_vain();
  }
  EXPECT_FALSE(is_blocked(SIGPIPE));  // and we live
}

TEST(BlockedSignals, ThreadsThatStartMeanwhileTakeNone) {
  std::optional<std::thread> thread;
  bool blocked_there = false;
  {
    const BlockedSignals blocked;
    thread.emplace([&] {
      write_in_vain();
      blocked_there = is_blocked(SIGTERM);
    });
  }
  thread->join();
  EXPECT_TRUE(blocked_there);
  EXPECT_FALSE(is_blocked(SIGTERM));
}

TEST(BlockedSignals, OneThatWasPendingBeforeStays) {
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  write_in_vain();
  {
    const BlockedSignals blocked;
    write_in_vain();
  }
  EXPECT_TRUE(is_blocked(SIGPIPE));
  const timespec at_once{};
  EXPECT_EQ(sigtimedwait(&broken_pipe, nullptr, &at_once), SIGPIPE);
  pthread_sigmask(SIG_UNBLOCK, &broken_pipe, nullptr);
}

}  // namespace
}  // namespace dear::os::blocked_signals_test
