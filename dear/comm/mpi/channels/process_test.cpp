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

[[noreturn]] void live_and_exit(int (*finalize)(), int code) {
  const MpiBinding binding{.revision = kMpiBindingRevision,
                           .implementation = "none",
                           .prepare = prepare,
                           .initialize = start_alone,
                           .meet_to_end = meet,
                           .finalize = finalize};
  static_cast<void>(take_mpi(binding, true, Deadline::after(std::chrono::seconds(60))));
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

}  // namespace
}  // namespace dear::channels::process_test
