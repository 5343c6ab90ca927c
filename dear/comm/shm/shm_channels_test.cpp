// Messages between two ranks in shared memory, as threads and as processes, and when one of them dies.

#include "dear/comm/shm/shm_channels.h"

#include <csignal>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/comm/channels/testing/channels.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::backends::shm_channels_test {
namespace {

using channels::Channels;
using channels::Transfer;
using comm::testing::run_on_threads;
using ::testing::AllOf;
using ::testing::Each;
using testing::fresh_rendezvous;
using ::testing::HasSubstr;
using testing::make_shm_threads;
using testing::meet_as;
using testing::run_in_processes;
using ::testing::StartsWith;

TEST(ShmChannels, CarryEverythingBetweenThreadsAndProcesses) {
  for (const int size : {2, 3}) {
    EXPECT_THAT(run_on_threads(make_shm_threads(size), {},
                               [](Group& group) {
                                 channels::testing::check_channels(*group.open_channels(8));
                                 group.barrier().wait();
                               }),
                Each("ok"));
    const std::string rendezvous = fresh_rendezvous();
    EXPECT_THAT(run_in_processes(size,
                                 [&](int rank) {
                                   const Group group = meet_as(rank, size, rendezvous);
                                   channels::testing::check_channels(*group.open_channels(8));
                                   group.barrier().wait();
                                 }),
                Each("ok"));
  }
}

TEST(ShmChannels, NameBothLengths) {
  EXPECT_THAT(
      run_on_threads(make_shm_threads(2), {},
                     [](Group& group) { channels::testing::check_wrong_length(*group.open_channels(8)); }),
      Each("ok"));
}

// A receive of what rank 1 never sends.
void wait_for_rank_1(const Group& group) {
  const auto opened = group.open_channels(1);
  if (group.rank() == 1) raise(SIGKILL);
  std::byte byte{};
  Transfer receive{.direction = Transfer::Direction::receive, .peer = 1, .data = &byte, .bytes = 1};
  opened->start(receive);
  while (!receive.done)
    opened->wait([] { return "wait for a byte"; }, Deadline::after(std::chrono::minutes(1)));
}

TEST(ShmChannels, NameARankThatDies) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_in_processes(3, [&](int rank) { wait_for_rank_1(meet_as(rank, 3, rendezvous)); });
  EXPECT_EQ(reports[1], "killed by signal 9");
  for (const std::size_t rank : {0, 2})
    EXPECT_THAT(reports[rank], AllOf(StartsWith("TransportError"), HasSubstr("rank 1")));
}

TEST(ShmChannels, NameARankThatDoesNotSend) {
  const auto reports = run_on_threads(make_shm_threads(2), {}, [](Group& group) {
    const auto opened = group.open_channels(1);
    std::byte byte{};
    Transfer receive{
        .direction = Transfer::Direction::receive, .peer = 1 - group.rank(), .data = &byte, .bytes = 1};
    opened->start(receive);
    const Deadline deadline = Deadline::after(std::chrono::milliseconds(200));
    while (!receive.done) opened->wait([] { return "wait for a byte"; }, deadline);
  });
  EXPECT_THAT(reports, Each(AllOf(StartsWith("TimeoutError"), HasSubstr("rank "))));
}

}  // namespace
}  // namespace dear::backends::shm_channels_test
