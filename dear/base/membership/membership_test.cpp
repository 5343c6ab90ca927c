#include <algorithm>
#include <future>
#include <poll.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/membership/member.h"
#include "dear/base/membership/registrar.h"
#include "dear/base/vocabulary/error.h"

namespace dear::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

// The launcher's loop, until all of these have joined.
std::vector<Roster> joined(Registrar& registrar, std::vector<std::future<Roster>> all) {
  std::vector<Roster> rosters;
  while (!std::all_of(all.begin(), all.end(), [](const auto& one) {
    return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  })) {
    pollfd said{.fd = registrar.board().fd(), .events = POLLIN, .revents = 0};
    poll(&said, 1, 10);
    registrar.read();
  }
  for (auto& one : all) rosters.push_back(one.get());
  return rosters;
}

std::vector<Roster> join(Registrar& registrar, const std::vector<int>& numbers) {
  std::vector<std::future<Roster>> all;
  for (const int number : numbers)
    all.push_back(std::async(std::launch::async, [place = registrar.board().place(), number] {
      return Member(place, number).join(soon());
    }));
  return joined(registrar, std::move(all));
}

TEST(Membership, OpensAnEpochWhenAllOfItAreReady) {
  Registrar registrar(3);
  EXPECT_FALSE(registrar.follows(1));
  for (const Roster& one : join(registrar, {0, 1, 2})) {
    EXPECT_EQ(one.epoch, 0);
    EXPECT_THAT(one.members, ElementsAre(0, 1, 2));
  }
  EXPECT_TRUE(registrar.follows(1));
  registrar.leaves(1, false);
  EXPECT_FALSE(Member(registrar.board().place(), 0).roster().open);
  for (const Roster& one : join(registrar, {0, 2})) {
    EXPECT_EQ(one.epoch, 1);
    EXPECT_THAT(one.members, ElementsAre(0, 2));
    EXPECT_EQ(one.rank_of(2), 1);
    EXPECT_EQ(one.rank_of(1), std::nullopt);
  }
}

TEST(Membership, TakesInOneThatComesBehindTheOthers) {
  Registrar registrar(2);
  join(registrar, {0, 1});
  registrar.leaves(0, false);
  join(registrar, {1});
  registrar.enters(0);
  for (const Roster& one : join(registrar, {0, 1})) EXPECT_THAT(one.members, ElementsAre(1, 0));
}

TEST(Membership, BeginsAnotherEpochWhereOneEndsBeforeItIsReady) {
  Registrar registrar(3);
  auto first =
      std::async(std::launch::async, [&] { return Member(registrar.board().place(), 0).join(soon()); });
  auto second =
      std::async(std::launch::async, [&] { return Member(registrar.board().place(), 1).join(soon()); });
  registrar.leaves(2, true);
  std::vector<std::future<Roster>> all;
  all.push_back(std::move(first));
  all.push_back(std::move(second));
  for (const Roster& one : joined(registrar, std::move(all))) EXPECT_THAT(one.members, ElementsAre(0, 1));
}

TEST(Membership, EndsOfWorkAreNoEpochForOthers) {
  Registrar registrar(2);
  join(registrar, {0, 1});
  registrar.leaves(0, true);
  EXPECT_EQ(registrar.roster().epoch, 0);
  // The next epoch is without it.
  for (const Roster& one : join(registrar, {1})) EXPECT_THAT(one.members, ElementsAre(1));
}

TEST(Membership, TellsFailuresAtOnceFromThoseThatFollow) {
  Registrar registrar(3);
  join(registrar, {0, 1, 2});
  EXPECT_FALSE(registrar.fails_with_another(1));
  registrar.leaves(1, false);
  EXPECT_TRUE(registrar.fails_with_another(2));
  join(registrar, {0, 2});
  EXPECT_FALSE(registrar.fails_with_another(2));
}

TEST(Membership, OpensNoEpochOfNewcomersAlone) {
  Registrar registrar(2);
  join(registrar, {0, 1});
  registrar.leaves(0, false);
  registrar.enters(0);
  EXPECT_FALSE(registrar.works(0));
  EXPECT_TRUE(registrar.works(1));
  auto coming = std::async(std::launch::async, [&] {
    return Member(registrar.board().place(), 0).join(Deadline::after(std::chrono::milliseconds(200)));
  });
  while (!registrar.roster().rank_of(0)) registrar.read();
  registrar.leaves(1, true);
  EXPECT_THAT(registrar.roster().members, ElementsAre(0));
  std::vector<std::future<Roster>> all;
  all.push_back(std::move(coming));
  EXPECT_THROW(joined(registrar, std::move(all)), TimeoutError);
  EXPECT_TRUE(registrar.roster().begun);
}

TEST(Membership, MeetsAgainWhereAMemberAsks) {
  Registrar registrar(2);
  join(registrar, {0, 1});
  for (const Roster& one : join(registrar, {0, 1})) EXPECT_EQ(one.epoch, 1);
}

TEST(Membership, SaysWhoIsMissing) {
  Registrar registrar(2);
  EXPECT_THAT(
      [&] {
        static_cast<void>(
            Member(registrar.board().place(), 0).join(Deadline::after(std::chrono::seconds(0))));
      },
      ThrowsMessage<TimeoutError>(HasSubstr("epoch 0 were not all ready")));
}

TEST(Membership, RefusesPlacesThatAreNone) {
  EXPECT_THAT([] { Member("nowhere", 0); }, ThrowsMessage<ConfigError>(HasSubstr("DEAR_MEMBERSHIP")));
  EXPECT_THAT([] { Member("/nowhere/a:/nowhere/b", 0); },
              ThrowsMessage<ConfigError>(HasSubstr("/nowhere/a")));
}

TEST(Membership, MeetsAtTheHostOfRank0) {
  std::string elsewhere;
  Registrar registrar(3, {.of =
                              [](int member) {
                                return Registrar::Host{.number = member == 0 ? 0 : 1,
                                                       .address = member == 0 ? "10.0.0.1" : "10.0.0.2",
                                                       .port = 1000 + member};
                              },
                          .publish = [&](const std::string& roster) { elsewhere = roster; }});
  EXPECT_EQ(registrar.roster().address, "10.0.0.1");
  for (const Roster& one : join(registrar, {0, 1, 2})) {
    EXPECT_THAT(one.hosts, ElementsAre(0, 1, 1));
    EXPECT_EQ(one.local_rank(2), 1);
    EXPECT_EQ(one.local_size(2), 2);
    EXPECT_EQ(one.local_size(0), 1);
  }
  registrar.leaves(0, false);
  registrar.hear("1 ready 1");
  registrar.hear("2 ready 1");
  const auto roster = roster_in(elsewhere);
  ASSERT_TRUE(roster);
  EXPECT_TRUE(roster->open);
  EXPECT_EQ(roster->address, "10.0.0.2");
  EXPECT_EQ(roster->port, 1001);
}

TEST(Roster, IsReadWholeOrNotAtAll) {
  const std::string text = to_text({.epoch = 12, .open = true, .members = {3, 0, 7}});
  const auto back = roster_in(text + "4 5 of a longer one before\n");
  ASSERT_TRUE(back);
  EXPECT_EQ(back->epoch, 12);
  EXPECT_TRUE(back->open);
  EXPECT_THAT(back->members, ElementsAre(3, 0, 7));
  for (std::size_t cut = 0; cut + 1 < text.size(); ++cut) EXPECT_FALSE(roster_in(text.substr(0, cut)));
  EXPECT_FALSE(roster_in("x|y"));
}

}  // namespace
}  // namespace dear::membership
