#include "dear/comm/agreement/control_plane.h"

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/testing/groups.h"
#include "dear/comm/shm/testing/shm_threads.h"

namespace dear::control_plane_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

// Runs `body` for each rank on a thread of its own; nothing may be thrown.
void run_all(const comm::testing::GroupBody& body) {
  EXPECT_THAT(comm::testing::run_on_threads(backends::testing::make_shm_threads(kRanks), {}, body),
              Each("ok"));
}

// The message of the E that `act` throws.
template <typename E, typename Act>
std::string refusal(Act act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  }
  return "not refused";
}

TEST(ControlPlane, CarriesValues) {
  run_all([](const Group& group) {
    const int rank = group.rank();
    const std::vector<double> mine(static_cast<std::size_t>(rank), 0.1 * rank);
    const auto all = all_gather_values(group, agreement::Subject::state, mine);
    ASSERT_EQ(all.size(), 3U);
    EXPECT_THAT(all[0], ElementsAre());
    EXPECT_THAT(all[2], ElementsAre(0.2, 0.2));
    EXPECT_THAT(of_rank_0(group, agreement::Subject::profile, std::vector<std::int64_t>{7 - rank}),
                ElementsAre(7));
  });
}

TEST(ControlPlane, RefusesOtherSubjectsAndLayoutsOnEveryRank) {
  run_all([](const Group& group) {
    const int rank = group.rank();
    const std::string subject = refusal<MismatchError>([&] {
      of_rank_0(group, rank == 2 ? agreement::Subject::state : agreement::Subject::profile,
                std::vector<double>{1});
    });
    EXPECT_THAT(subject, AllOf(HasSubstr("rank 2 exchanges the optimiser's state"),
                               HasSubstr("rank 0 what it measured"), HasSubstr("make the same calls")));
    const std::string layout = refusal<MismatchError>([&] {
      if (rank == 2) {
        of_rank_0(group, agreement::Subject::profile, std::vector<float>{1});
      } else {
        of_rank_0(group, agreement::Subject::profile, std::vector<double>{1});
      }
    });
    EXPECT_THAT(layout, AllOf(HasSubstr("of 4 bytes"), HasSubstr("of 8 bytes")));
    EXPECT_NO_THROW(meet(group, agreement::Call::regroup, 3));
  });
}

TEST(ControlPlane, CallsThatDifferAreNamedOnEveryRank) {
  run_all([](const Group& group) {
    const int rank = group.rank();
    const std::string call = refusal<MismatchError>(
        [&] { meet(group, rank == 1 ? agreement::Call::rebuild : agreement::Call::regroup, 3); });
    EXPECT_THAT(call, HasSubstr("rank 1 called rebuild() after 3 steps, rank 0 regroup() after 3 steps"));
    const std::string steps =
        refusal<MismatchError>([&] { meet(group, agreement::Call::regroup, rank == 2 ? 4 : 3); });
    EXPECT_THAT(steps, HasSubstr("rank 2 called regroup() after 4 steps, rank 0 regroup() after 3 steps"));
  });
}

TEST(ControlPlane, WhatOneRankRefusesAllRefuse) {
  run_all([](const Group& group) {
    const int rank = group.rank();
    EXPECT_NO_THROW(agreement::check_together(group, [] {}));
    if (rank == 1) {
      EXPECT_EQ(refusal<MismatchError>(
                    [&] { agreement::check_together(group, [] { throw MismatchError("no such file"); }); }),
                "no such file");
    } else {
      EXPECT_EQ(refusal<ConfigError>([&] { agreement::check_together(group, [] {}); }),
                "rank " + std::to_string(rank) + ": rank 1 refused: no such file");
    }
  });
}

TEST(ControlPlane, ARemedyIsAddedOnceAndToMismatchesOnly) {
  const auto text_of = [](const std::exception_ptr& error) {
    return refusal<std::exception>([&] { std::rethrow_exception(error); });
  };
  const auto once = agreement::with_remedy(std::make_exception_ptr(MismatchError("rank 0: sizes differ")));
  EXPECT_THAT(text_of(once), HasSubstr("sizes differ; make the same calls"));
  EXPECT_EQ(agreement::with_remedy(once), once);
  const auto other = std::make_exception_ptr(ConfigError("no"));
  EXPECT_EQ(agreement::with_remedy(other), other);
  EXPECT_EQ(agreement::with_remedy(nullptr), nullptr);
}

TEST(ControlPlane, TheSecondOnAGroupGetsADuplicate) {
  run_all([](const Group& group) {
    const int rank = group.rank();
    const Group first = agreement::own_group(group), second = agreement::own_group(group);
    EXPECT_EQ(second.rank(), rank);
    EXPECT_EQ(second.size(), kRanks);
    EXPECT_FALSE(group.claim());
    EXPECT_EQ(first.size(), kRanks);
    EXPECT_THAT(of_rank_0(second, agreement::Subject::profile, std::vector<std::int64_t>{7 - rank}),
                ElementsAre(7));
  });
}

}  // namespace
}  // namespace dear::control_plane_test
