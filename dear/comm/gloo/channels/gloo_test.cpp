#include "dear/comm/gloo/channels/gloo.h"

#include <functional>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/base/os/testing/reserved_port.h"
#include "dear/base/vocabulary/error.h"

namespace dear::channels::gloo_test {
namespace {

using os::testing::report_of;
using os::testing::ReservedPort;
using os::testing::run_on_threads;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

GlooOptions at(const ReservedPort& port, int rank, int size) {
  return {.rank = rank,
          .size = size,
          .master_address = "127.0.0.1",
          .master_port = port.number(),
          .deadline = Deadline::after(std::chrono::seconds(60))};
}

TEST(GlooMesh, IsThere) { EXPECT_EQ(gloo_missing(), ""); }

TEST(GlooMesh, CarriesMessagesOnTheInterfaceThatIsNamed) {
  const ReservedPort port;
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    GlooOptions options = at(port, rank, 2);
    options.interface_name = "lo";
    const auto gloo = open_gloo(options);
    int number = rank == 0 ? 4711 : 0;
    const std::atomic<bool> interrupted = false;
    const auto posted =
        rank == 0 ? gloo->send(&number, sizeof number, 1, 3) : gloo->receive(&number, sizeof number, 0, 3);
    EXPECT_TRUE(posted->wait(interrupted));
    EXPECT_EQ(number, 4711);
    gloo->barrier();
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(GlooMesh, AnInterfaceThatIsNoneIsNamed) {
  const ReservedPort port;
  GlooOptions options = at(port, 0, 2);
  options.interface_name = "nosuch0";
  EXPECT_THAT(
      os::testing::report_of([&] { open_gloo(options); }),
      AllOf(StartsWith("ConfigError: rank 0"), HasSubstr("nosuch0"), HasSubstr("GLOO_SOCKET_IFNAME")));
}

TEST(GlooMesh, BadPlacesAreRefused) {
  const ReservedPort port;
  for (const auto& spoil : std::vector<std::function<void(GlooOptions&)>>{
           [](GlooOptions& options) { options.master_address = ""; },
           [](GlooOptions& options) { options.master_port = 0; },
           [](GlooOptions& options) { options.master_port = 70'000; },
           [](GlooOptions& options) { options.rank = 2; }}) {
    GlooOptions options = at(port, 0, 2);
    spoil(options);
    EXPECT_THROW(open_gloo(options), ConfigError);
  }
}

TEST(GlooMesh, AMessageThatIsInterruptedEndsTheWait) {
  const ReservedPort port;
  const auto reports = os::testing::run_on_threads(2, [&](int rank) {
    const auto gloo = open_gloo(at(port, rank, 2));
    int number = 0;
    const auto never = gloo->receive(&number, sizeof number, 1 - rank, 5);
    const std::atomic<bool> interrupted = true;
    never->interrupt();
    EXPECT_FALSE(never->wait(interrupted));
    gloo->barrier();
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(GlooMesh, HasCollectivesOfItsOwn) {
  constexpr int kRanks = 3;
  const ReservedPort port;
  const auto reports = os::testing::run_on_threads(kRanks, [&](int rank) {
    const auto gloo = open_gloo(at(port, rank, kRanks));
    std::vector<float> vector(6);
    std::iota(vector.begin(), vector.end(), static_cast<float>(rank));
    gloo->all_reduce(vector.data(), 6, DType::f32, Reduction::sum);
    EXPECT_THAT(vector, ::testing::ElementsAre(3, 6, 9, 12, 15, 18));
    gloo->all_reduce(vector.data(), 6, DType::f32, Reduction::max);

    std::vector<std::int32_t> gathered(6, -1);
    gathered[static_cast<std::size_t>(2 * rank)] = gathered[static_cast<std::size_t>(2 * rank + 1)] = rank;
    gloo->all_gather(gathered.data(), 6, DType::i32);
    EXPECT_THAT(gathered, ::testing::ElementsAre(0, 0, 1, 1, 2, 2));

    std::vector<std::int32_t> turned(6);
    for (std::size_t i = 0; i < 6; ++i) gathered[i] = 10 * rank + static_cast<int>(i) / 2;
    gloo->all_to_all(gathered.data(), turned.data(), 6, DType::i32);
    EXPECT_THAT(turned, ::testing::ElementsAre(rank, rank, 10 + rank, 10 + rank, 20 + rank, 20 + rank));

    std::vector<double> told(4, rank);
    gloo->broadcast(told.data(), 4, DType::f64, 2);
    EXPECT_THAT(told, Each(2.0));
    EXPECT_THROW(gloo->all_reduce(told.data(), 4, DType::f64, Reduction::average), std::runtime_error);
    EXPECT_THROW(gloo->all_reduce(told.data(), 4, DType::f64, Reduction::bitwise_or), std::runtime_error);

    std::vector<std::int32_t> bits(4, 1 << rank);
    gloo->all_reduce(bits.data(), 4, DType::i32, Reduction::bitwise_or);
    EXPECT_THAT(bits, Each(7));
    gloo->barrier();
  });
  EXPECT_THAT(reports, Each("ok"));
}

}  // namespace
}  // namespace dear::channels::gloo_test
