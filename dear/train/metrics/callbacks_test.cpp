#include "dear/train/metrics/callbacks.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

namespace dear::metrics::callbacks_test {
namespace {

using Action = std::function<void()>;

void run_all(Callbacks<Action>& callbacks) {
  callbacks.for_each([](const Action& run) { run(); });
}

TEST(CallbacksTest, MayWaitForAThreadThatAddsRemovesOrRunsOthers) {
  Callbacks<Action> callbacks;
  int others = 0;
  RemovableHandle other = callbacks.add([&] { ++others; });
  callbacks.add([&] {
    std::thread([&] {
      callbacks.add([] {}).remove();
      other.remove();
    }).join();
  });
  run_all(callbacks);
  run_all(callbacks);
  EXPECT_EQ(others, 1);
}

TEST(CallbacksTest, ARemovedOneRunsNoLongerWhenRemoveReturns) {
  Callbacks<Action> callbacks;
  std::atomic<bool> began = false, ended = false;
  RemovableHandle handle = callbacks.add([&] {
    began = true;
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // to whoever removes it
    ended = true;
  });
  std::thread runs([&] { run_all(callbacks); });
  while (!began) std::this_thread::yield();
  handle.remove();
  EXPECT_TRUE(ended);
  runs.join();
  EXPECT_FALSE(callbacks.any());
}

TEST(CallbacksTest, MayRemoveItselfAndThoseAfterIt) {
  Callbacks<Action> callbacks;
  int first = 0, second = 0;
  RemovableHandle itself, next;
  itself = callbacks.add([&] {
    ++first;
    itself.remove();
    next.remove();
  });
  next = callbacks.add([&] { ++second; });
  run_all(callbacks);
  run_all(callbacks);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 0);
}

TEST(CallbacksTest, OneThatThrowsHasEnded) {
  Callbacks<Action> callbacks;
  RemovableHandle handle = callbacks.add([] { throw 1; });
  std::thread([&] { EXPECT_THROW(run_all(callbacks), int); }).join();
  handle.remove();  // returns
  EXPECT_FALSE(callbacks.any());
}

}  // namespace
}  // namespace dear::metrics::callbacks_test
