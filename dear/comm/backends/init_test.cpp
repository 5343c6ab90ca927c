#include "dear/comm/backends/init.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/memory.h"
#include "dear/comm/group/exchange.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/platform/cluster/sites.h"

namespace dear::init_test {
namespace {

using backends::testing::fresh_rendezvous;
using backends::testing::run_in_processes;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void become(int rank, int size, const std::string& rendezvous) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
  setenv("DEAR_RENDEZVOUS", rendezvous.c_str(), 1);
}

TEST(Init, WithoutALauncherIsAGroupOfOne) {
  const auto reports = run_in_processes(1, [](int) {
    clearenv();
    const Group group = init();
    EXPECT_EQ(group.description(), "single, 1 rank");
    EXPECT_EQ(group.timeout(), std::chrono::seconds(120));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Init, MeetsTheRanksOfThisHost) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_in_processes(3, [&](int rank) {
    become(rank, 3, rendezvous);
    const Group group = init();
    EXPECT_EQ(group.rank(), rank);
    EXPECT_EQ(group.description(), "shm, 3 ranks on this host");
    agree(group, "group", group.description());
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Init, PutsTheGroupOnAModelledNetwork) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_in_processes(2, [&](int rank) {
    become(rank, 2, rendezvous);
    Group group = init({.network = parse_network("bandwidth=1gbit,latency=1us")});
    EXPECT_THAT(group.modelled_network(), HasSubstr("1 Gbit/s"));
    group.barrier().wait();
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Init, RefusesLinksOfPairsWhereTheyCannotBeModelled) {
  const std::string rendezvous = fresh_rendezvous();
  const PairCluster cluster = find_pair_cluster("two-sites");
  const auto reports = run_in_processes(3, [&](int rank) {
    become(0, rank == 0 ? 3 : 8, rendezvous);
    if (rank == 2) {
      setenv("LOCAL_RANK", "0", 1);
      setenv("LOCAL_WORLD_SIZE", "4", 1);
    }
    init({.network = cluster, .backend = rank == 1 ? "shm" : ""});
  });
  EXPECT_THAT(reports, ElementsAre(AllOf(HasSubstr("8 devices"), HasSubstr("3 ranks")),
                                   AllOf(HasSubstr("backend shm"), HasSubstr("choose one of gloo")),
                                   AllOf(HasSubstr("4 of 8 ranks here"), HasSubstr("two-sites"))));
}

// With its group in a local: no destructor runs.
TEST(Init, ARankThatExitsHasLeft) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_in_processes(2, [&](int rank) {
    become(rank, 2, rendezvous);
    Group group = init();
    group.barrier().wait();
    if (rank == 1) std::exit(0);
    group.barrier().wait();
  });
  EXPECT_THAT(reports.at(0), AllOf(HasSubstr("TransportError"), HasSubstr("rank 1")));
}

// Destroyed after all that was there when it was made: after the handlers of exit().
TEST(InitDeathTest, AGroupInAGlobalEndsWithTheProcess) {
  static std::optional<Group> kept;
  EXPECT_EXIT(
      {
        clearenv();
        kept.emplace(init());
        kept->barrier().wait();
        std::atexit([] {
          // Registered last, runs first: the group is there.
          kept->barrier().wait();
        });
        std::exit(3);
      },
      ::testing::ExitedWithCode(3), "");
}

TEST(Init, NamesTheRanksThatDoNotCome) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_in_processes(2, [&](int rank) {
    become(rank, 3, rendezvous);
    init({.timeout = std::chrono::seconds(1)});
  });
  EXPECT_THAT(reports, Each(HasSubstr("TimeoutError: rank 2 ")));
}

// Where they would meet over Gloo, if there is one; each says what it lacks.
TEST(Init, RefusesOtherHostsWithoutAPlaceToMeet) {
  const auto reports = run_in_processes(1, [](int) {
    become(0, 4, "x");
    setenv("LOCAL_RANK", "0", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    init();
  });
  EXPECT_THAT(reports, Each(AllOf(HasSubstr("ConfigError"), HasSubstr("torchrun"), HasSubstr("Gloo"))));
}

TEST(Init, SaysOnceWhichBackendItChoseAndWhy) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_in_processes(2, [&](int rank) {
    become(rank, 2, rendezvous);
    std::vector<std::string> said;
    const Group group = init({.say = [&](const std::string& sentence) { said.push_back(sentence); }});
    const std::vector<std::string> expected = {"backend shm: all 2 ranks met in this host's memory"};
    EXPECT_EQ(said, rank == 0 ? expected : std::vector<std::string>());
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Init, SaysThatABatchScriptOfSlurmIsAlone) {
  const auto reports = run_in_processes(1, [](int) {
    clearenv();
    setenv("SLURM_JOB_ID", "12", 1);
    std::vector<std::string> said;
    const auto note = [&](const std::string& sentence) { said.push_back(sentence); };
    setenv("SLURM_NTASKS", "1", 1);
    init({.say = note});
    EXPECT_THAT(said, ElementsAre());
    setenv("SLURM_NTASKS", "4", 1);
    EXPECT_EQ(init({.say = note}).size(), 1);
    EXPECT_THAT(said,
                ElementsAre("this process is alone, though Slurm's job 12 has 4 tasks: start it by srun"));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Init, TakesTheBackendThatIsAskedFor) {
  const std::string rendezvous = fresh_rendezvous();
  const auto reports = run_in_processes(2, [&](int rank) {
    become(rank, 2, rendezvous);
    std::string said;
    const Group group =
        init({.backend = "shm", .reproducible = true, .say = [&](const std::string& sentence) {
                said = sentence;
              }});
    EXPECT_EQ(group.description(), "shm, 2 ranks on this host");
    EXPECT_EQ(said, rank == 0 ? "backend shm: as asked for (shm, 2 ranks on this host)" : "");
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Init, RefusesABackendThatIsNoneOrCannotServe) {
  const auto reports = run_in_processes(1, [](int) {
    become(0, 2, "x");
    EXPECT_THAT(backends::testing::report_of([] { init({.backend = "ethernet"}); }),
                ContainsRegex("^ConfigError: .*'ethernet'.*single, shm"));
    EXPECT_THAT(backends::testing::report_of([] { init({.backend = "single"}); }),
                ContainsRegex("^ConfigError: .*single.*torchrun started 2"));
    setenv("LOCAL_RANK", "0", 1);
    setenv("LOCAL_WORLD_SIZE", "1", 1);
    EXPECT_THAT(backends::testing::report_of([] { init({.backend = "shm"}); }),
                ContainsRegex("^ConfigError: .*shm.* one host"));
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(Init, RefusesABadEnvironment) {
  const auto reports = run_in_processes(1, [](int) {
    become(0, 4, "x");
    setenv("RANK", "zero", 1);
    init();
  });
  EXPECT_THAT(reports, Each(ContainsRegex("^ConfigError: .*RANK is \"zero\"")));
}

TEST(Memory, RefusesWhatIsNotThereAndSaysHowMuchIs) {
  EXPECT_GT(os::available_memory(), 0);
  EXPECT_EQ(backends::testing::report_of([] { os::require_memory(1000, "a test"); }), "ok");
  EXPECT_THAT(backends::testing::report_of([] { os::require_memory(std::int64_t{1} << 55, "a test"); }),
              AllOf(HasSubstr("TransportError: cannot allocate"), HasSubstr("for a test: only")));
}

}  // namespace
}  // namespace dear::init_test
