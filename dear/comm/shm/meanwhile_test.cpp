#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/shm/shm.h"
#include "dear/comm/shm/testing/ranks.h"

// What goes on while a rank waits for its peers.
namespace dear::backends::meanwhile_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }

// Two ranks that have met. `late` is what rank 0 does before it comes to a barrier, `meanwhile` what rank 1
// does that waits for it.
std::vector<std::string> run(const std::function<void()>& late, const std::function<void()>& meanwhile) {
  const std::string rendezvous = testing::fresh_rendezvous();
  std::atomic<bool> met = false;
  return testing::run_on_threads(2, [&](int rank) {
    const auto backend = make_shm(
        {.rendezvous = rendezvous, .rank = rank, .size = 2, .deadline = patience(), .meanwhile = [&, rank] {
           if (rank == 1 && met) meanwhile();
         }});
    backend->run({}, patience());
    if (rank == 0) {
      met = true;
      late();
    }
    // The first may end well for rank 0: its peer had come, whatever it met then.
    backend->run({}, patience());
    backend->run({}, patience());
  });
}

TEST(Meanwhile, IsCalledAgainAndAgainUntilThePeersHaveCome) {
  std::atomic<int> calls = 0;
  const auto late = [&] {
    for (int seen = 0; seen < 3; seen = calls) calls.wait(seen);
  };
  const auto meanwhile = [&] {
    ++calls;
    calls.notify_all();
  };
  EXPECT_THAT(run(late, meanwhile), ElementsAre("ok", "ok"));
  EXPECT_GE(calls, 3);
}

TEST(Meanwhile, FailsTheGroupWithWhatItThrows) {
  std::atomic<bool> thrown = false;
  const auto meanwhile = [&] {
    thrown = true;
    thrown.notify_all();
    throw TransportError("rank 1: the wire is cut");
  };
  EXPECT_THAT(run([&] { thrown.wait(false); }, meanwhile),
              ElementsAre(AllOf(StartsWith("TransportError: rank 1"), HasSubstr("the wire is cut")),
                          "TransportError: rank 1: the wire is cut"));
}

}  // namespace
}  // namespace dear::backends::meanwhile_test
