#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/group/group.h"
#include "dear/comm/group/single.h"
#include "dear/comm/group/testing/chunk_rows.h"
#include "dear/comm/group/testing/conformance.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/comm/shaped/shaped.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"

// The suite of testing/conformance.h on the backends that this folder has.
namespace dear::backends::collectives_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using testing::GroupBody;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Network fast_network() {
  return {.name = "a test's", .link = {.alpha_seconds = 1e-9, .beta_seconds_per_byte = 1e-15}};
}

std::vector<std::unique_ptr<Backend>> make_threads(int size, const std::string& kind) {
  if (kind == "single") {
    std::vector<std::unique_ptr<Backend>> one;
    one.push_back(comm::make_single());
    return one;
  }
  if (kind == "programs" || kind == "reproducible") {
    std::vector<std::unique_ptr<Backend>> backends;
    for (auto& channels : channels::testing::make_thread_channels(size)) {
      backends.push_back(message_programs::make_program_backend(std::move(channels),
                                                                {.reproducible = kind == "reproducible"}));
    }
    return backends;
  }
  std::vector<std::unique_ptr<Backend>> backends = testing::make_shm_threads(size);
  if (kind == "shaped") {
    for (auto& backend : backends) {
      backend = make_shaped(std::move(backend), fast_network());
    }
  }
  return backends;
}

struct World {
  std::string kind;
  int size;
};
void PrintTo(const World& world, std::ostream* out) { *out << world.kind << " of " << world.size; }

class Collectives : public ::testing::TestWithParam<World> {
 protected:
  static std::vector<std::string> run(const GroupBody& body) {
    const auto& [kind, size] = GetParam();
    if (kind == "processes") {
      const std::string rendezvous = testing::fresh_rendezvous();
      return testing::run_in_processes(size, [&, size = size](int rank) {
        Group group = testing::meet_as(rank, size, rendezvous);
        body(group);
      });
    }
    return comm::testing::run_on_threads(make_threads(size, kind), {}, body);
  }
};

TEST_P(Collectives, ReduceExactly) {
  EXPECT_THAT(run([](Group& group) { comm::testing::check_reductions(group); }), Each("ok"));
}
TEST_P(Collectives, CarryUnequalShardsOrRefuseThem) {
  if (GetParam().kind == "shaped") return;  // ends with the refusal
  EXPECT_THAT(run([](Group& group) { comm::testing::check_unequal_shards(group); }), Each("ok"));
}
TEST_P(Collectives, MoveExactly) {
  EXPECT_THAT(run([](Group& group) { comm::testing::check_movements(group); }), Each("ok"));
}
TEST_P(Collectives, RunInIssueOrder) {
  EXPECT_THAT(run([](Group& group) { comm::testing::check_in_flight(group); }), Each("ok"));
}
TEST_P(Collectives, RoundAlike) {
  const comm::testing::ConformanceOptions options{
      .order = GetParam().kind == "programs" ? comm::testing::Order::fixed : comm::testing::Order::ranks};
  EXPECT_THAT(run([&](Group& group) { comm::testing::check_rounding(group, options); }), Each("ok"));
}

TEST_P(Collectives, ShareOneMemoryOrSayThatTheyCannot) {
  const std::string& kind = GetParam().kind;
  if (kind == "single" || kind == "threads" || kind == "processes") {
    EXPECT_THAT(run([](Group& group) { comm::testing::check_shared_buffers(group); }), Each("ok"));
    return;
  }
  const std::string why = kind == "shaped" ? "leave the modelled network out" : "put them on one host";
  EXPECT_THAT(run([](Group& group) {
                EXPECT_FALSE(group.shares_memory());
                try {
                  static_cast<void>(group.allocate_shared(64));
                } catch (const ConfigError&) {
                  group.barrier().wait();  // the group goes on
                  throw;
                }
              }),
              Each(AllOf(StartsWith("ConfigError: rank "), HasSubstr(why))));
}

TEST_P(Collectives, HaveParts) {
  if (GetParam().size <= 4) {
    EXPECT_THAT(run([](Group& group) { comm::testing::check_parts(group); }), Each("ok"));
  }
}

TEST_P(Collectives, RefuseCountsThatAChunkHasNoRoomFor) {
  const int size = GetParam().size;
  for (const std::int64_t rows : {std::int64_t{5}, std::int64_t{-1}, std::int64_t{1} << 60}) {
    for (const int to : {0, size - 1}) {
      const int liar = size / 2;
      EXPECT_THAT(
          run([&](Group& group) { comm::testing::lie_about_rows(group, liar, to, rows); }),
          Each(AllOf(StartsWith("TransportError: "),
                     HasSubstr(fmt::format("rank {} says that it sends {} rows of chunk 1 to rank {}, "
                                           "where a chunk has room for 4",
                                           liar, rows, to)))));
    }
  }
}

TEST_P(Collectives, RefuseChunksThatAreCutUpDifferently) {
  if (GetParam().size == 1) return;
  using enum comm::testing::Differing;
  for (const auto differing : {chunks, width}) {
    const auto reports = run([&](Group& group) { comm::testing::cut_up_differently(group, differing); });
    EXPECT_THAT(reports, Each(HasSubstr("rank 1 ")));
    EXPECT_THAT(reports, ::testing::Contains(StartsWith("MismatchError: ")));
  }
}

TEST_P(Collectives, EndAnExchangeOfRowsWhenARankFails) {
  const int victim = GetParam().size - 1;
  EXPECT_THAT(run([&](Group& group) {
                comm::testing::exchange_rows(group, [&](int round) {
                  if (round == 3 && group.rank() == victim) group.abort("the disk is full");
                });
              }),
              Each(AllOf(HasSubstr(fmt::format("rank {} failed", victim)), HasSubstr("the disk is full"))));
}

std::vector<World> worlds() {
  std::vector<World> all{{"single", 1}};
  for (int size = 1; size <= 8; ++size) {
    all.push_back({"threads", size});
    all.push_back({"programs", size});
    all.push_back({"reproducible", size});
  }
  for (const int size : {1, 2, 3, 4, 8}) {
    all.push_back({"processes", size});
  }
  for (const int size : {2, 3}) {
    all.push_back({"shaped", size});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Backends, Collectives, ::testing::ValuesIn(worlds()), [](const auto& test) {
  return fmt::format("{}{}", test.param.kind, test.param.size);
});

class WaitingRanks : public Collectives {};
TEST_P(WaitingRanks, SleepUntilTheLastHasCome) {
  EXPECT_THAT(run([](Group& group) { comm::testing::check_waiting(group); }), Each("ok"));
}
INSTANTIATE_TEST_SUITE_P(Backends, WaitingRanks,
                         ::testing::Values(World{"threads", 4}, World{"processes", 2}, World{"processes", 4},
                                           World{"programs", 4}, World{"shaped", 2}),
                         [](const auto& test) {
                           return fmt::format("{}{}", test.param.kind, test.param.size);
                         });

// ---- Parts of a group that fail.

class Parts : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<std::string> run(const GroupBody& body) {
    return comm::testing::run_on_threads(make_threads(4, GetParam()), {}, body);
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Parts, ::testing::Values("threads", "programs", "shaped"));

// Ranks 1 and 3 are 0 and 1 in their part.
TEST_P(Parts, NameRanksOfTheWhole) {
  const auto reports = run([](Group& group) {
    const std::optional<Group> part = group.split(group.rank() % 2, 0);
    if (group.rank() == 3) part->abort("the disk is full");
    if (group.rank() % 2 == 1) part->barrier().wait();
  });
  EXPECT_THAT(reports[1], ContainsRegex("^TransportError: rank 3 .*disk"));
  EXPECT_EQ(reports[3], reports[1]);
}

TEST_P(Parts, NameRanksOfTheWholeThatAskForSomethingElse) {
  const auto reports = run([](Group& group) {
    const std::optional<Group> part = group.split(group.rank() % 2, 0);
    const Buffer buffer = part->allocate(4000);
    if (group.rank() % 2 == 1) part->all_gather({.buffer = buffer, .count = 997 + group.rank()}).wait();
  });
  for (const int rank : {1, 3}) {
    EXPECT_THAT(reports[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("rank 3 asks for"), HasSubstr("rank 1 for")));
  }
}

TEST_P(Parts, FailWithTheWhole) {
  const auto reports = run([](Group& group) {
    const Group part = group.duplicate();
    const Group inner = part.duplicate();
    if (group.rank() == 2) group.abort("the disk is full");
    inner.barrier().wait();
  });
  EXPECT_THAT(reports,
              Each(AllOf(StartsWith("TransportError: rank 2 failed: "), HasSubstr("the disk is full"))));
}

TEST_P(Parts, AreMadeByAllRanksAlike) {
  const auto reports = run([](Group& group) {
    if (group.rank() == 1) {
      static_cast<void>(group.duplicate());
    } else {
      static_cast<void>(group.split(0, 0));
    }
  });
  EXPECT_THAT(reports, Each(AllOf(StartsWith("MismatchError: "), HasSubstr("rank 1 duplicates"))));
}

TEST(PartsInSharedMemory, LeaveTheWholeAsItWasWhenTheyFail) {
  EXPECT_THAT(comm::testing::run_on_threads(make_threads(3, "threads"), {},
                                            [](Group& group) {
                                              const Group part = group.duplicate();
                                              if (group.rank() == 1) part.abort("the disk is full");
                                              EXPECT_THROW(part.barrier().wait(), TransportError);
                                              group.barrier().wait();
                                            }),
              Each("ok"));
}

}  // namespace
}  // namespace dear::backends::collectives_test
