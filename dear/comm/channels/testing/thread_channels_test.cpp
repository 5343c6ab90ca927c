#include "dear/comm/channels/testing/thread_channels.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/comm/channels/testing/channels.h"

namespace dear::channels::testing::thread_channels_test {
namespace {

using ::testing::Each;

std::vector<std::string> on_threads(int size, const std::function<void(Channels&)>& body) {
  auto channels = make_thread_channels(size);
  return os::testing::run_on_threads(size, [&](int rank) {
    const auto mine = std::move(channels[static_cast<std::size_t>(rank)]);
    body(*mine);
  });
}

TEST(ThreadChannels, KeepTheContract) {
  for (const int size : {1, 2, 3, 5}) {
    EXPECT_THAT(on_threads(size, check_channels), Each("ok")) << size;
  }
}

TEST(ThreadChannels, NameBothLengths) { EXPECT_THAT(on_threads(2, check_wrong_length), Each("ok")); }

}  // namespace
}  // namespace dear::channels::testing::thread_channels_test
