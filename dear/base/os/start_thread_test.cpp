#include "dear/base/os/start_thread.h"

#include <csignal>
#include <pthread.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::os::start_thread_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(StartThread, RunsTheBodyWithoutSignals) {
  bool blocked = false;
  start_thread("of a test", [&] {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGTERM) == 1;
  }).join();
  EXPECT_TRUE(blocked);
}

// No address space holds the stack of such a thread.
class HugeStacks {
 public:
  HugeStacks() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 47);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~HugeStacks() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  HugeStacks(const HugeStacks&) = delete;
  HugeStacks& operator=(const HugeStacks&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST(StartThread, RefusedByTheSystemIsAnErrorThatNamesItAndTheRemedy) {
  const HugeStacks huge;
  EXPECT_THAT([] { start_thread("of a test", [] {}); },
              ThrowsMessage<TransportError>(AllOf(HasSubstr("the thread of a test"), HasSubstr("ulimit"))));
}

}  // namespace
}  // namespace dear::os::start_thread_test
