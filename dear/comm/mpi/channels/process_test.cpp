#include "dear/comm/mpi/channels/process.h"

#include <cstdlib>
#include <unistd.h>

#include <gtest/gtest.h>

// MPI's life in a process, on an MPI that is none.
namespace dear::channels::process_test {
namespace {

void prepare(int /*outlive*/) {}
int start_alone(int* rank, int* size, int* serialized) {
  *rank = 0;
  *size = 1;
  *serialized = 1;
  return 0;
}
int meet(int (*)(const void*, std::int64_t), int* met) {
  *met = 1;
  return 0;
}
int never_return() {
  for (;;) ::pause();
}

int never_meet(int (*)(const void*, std::int64_t), int* /*met*/) { return never_return(); }

[[noreturn]] void live_and_exit(int (*finalize)(), int code, decltype(&meet) meets = meet,
                                std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  const MpiBinding binding{.revision = kMpiBindingRevision,
                           .implementation = "none",
                           .prepare = prepare,
                           .initialize = start_alone,
                           .meet_to_end = meets,
                           .finalize = finalize};
  static_cast<void>(take_mpi(binding, true, Deadline::after(timeout)));
  give_back_mpi(MpiState::whole);
  std::exit(code);
}

TEST(MpiProcessDeathTest, EndsWithItsOwnCode) {
  EXPECT_EXIT(live_and_exit([] { return 0; }, 3), ::testing::ExitedWithCode(3), "");
}

// All ranks have met: nothing is lost when MPI is left behind.
TEST(MpiProcessDeathTest, EndsThoughMpiDoesNot) {
  EXPECT_EXIT(live_and_exit(never_return, 4), ::testing::ExitedWithCode(4), "");
}

// A peer that never comes to the end is waited for as long as for anything else.
TEST(MpiProcessDeathTest, EndsWithinItsTimeoutThoughPeersDoNotCome) {
  EXPECT_EXIT(live_and_exit([] { return 0; }, 5, never_meet, std::chrono::milliseconds(200)),
              ::testing::ExitedWithCode(5),
              "rank 0 ends without MPI's own end: not all ranks came to it within");
}

}  // namespace
}  // namespace dear::channels::process_test
