#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/reserved_port.h"
#include "dear/comm/backends/init.h"
#include "dear/comm/group/exchange.h"
#include "dear/comm/group/testing/conformance.h"
#include "dear/comm/shm/testing/ranks.h"

// Backend gloo as programs ask for it, by name or by where a launcher that is no MPI put the ranks.
namespace dear::gloo_init_test {
namespace {

using backends::testing::report_of;
using backends::testing::run_in_processes;
using os::testing::ReservedPort;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

// As torchrun starts one rank on each host.
void become(int rank, int size, int port) {
  clearenv();
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
  setenv("LOCAL_RANK", "0", 1);
  setenv("LOCAL_WORLD_SIZE", "1", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
}

TEST(GlooInit, IsTakenWhereItIsAskedFor) {
  const ReservedPort port;
  const auto reports = run_in_processes(3, [&](int rank) {
    become(rank, 3, port.number());
    std::string said;
    const Group group =
        init({.backend = "gloo", .say = [&](const std::string& sentence) { said = sentence; }});
    EXPECT_EQ(group.rank(), rank);
    EXPECT_THAT(group.description(), HasSubstr("Gloo 0."));
    agree(group, "group", group.description());
    if (rank == 0) {
      EXPECT_THAT(said, StartsWith("backend gloo: as asked for"));
    }
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(GlooInit, IsChosenForRanksOnSeveralHostsThatNoMpiStarted) {
  const ReservedPort port;
  const auto reports = run_in_processes(2, [&](int rank) {
    become(rank, 2, port.number());
    std::string said;
    Group group = init({.say = [&](const std::string& sentence) { said = sentence; }});
    group.barrier().wait();
    if (rank == 0) {
      EXPECT_THAT(said,
                  AllOf(StartsWith("backend gloo: torchrun"), HasSubstr(std::to_string(port.number()))));
    }
  });
  EXPECT_THAT(reports, Each("ok"));
}

PairCluster pair_of_links(double bytes_per_second) {
  return {.name = "two rooms",
          .devices = {{.name = "a", .flops_per_second = 1e12, .memory_bytes = 1 << 30},
                      {.name = "b", .flops_per_second = 1e12, .memory_bytes = 1 << 30}},
          .bytes_per_second = {{0, bytes_per_second}, {2e9, 0}},
          .latency_seconds = {{0, 1e-6}, {2e-6, 0}}};
}

void become_on_one_host(int rank, int size, int port) {
  become(rank, size, port);
  setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", std::to_string(size).c_str(), 1);
}

TEST(GlooInit, IsChosenForLinksOfPairs) {
  const ReservedPort port;
  const auto reports = run_in_processes(2, [&](int rank) {
    become_on_one_host(rank, 2, port.number());
    std::string said;
    Group group =
        init({.network = pair_of_links(1e9), .reproducible = true, .say = [&](const std::string& sentence) {
                said = sentence;
              }});
    EXPECT_THAT(group.modelled_network(), StartsWith("two rooms (2 devices, 8 to 16 Gbit/s"));
    EXPECT_THAT(group.description(), HasSubstr("Gloo 0."));
    EXPECT_THAT(said, HasSubstr(rank == 0 ? "backend gloo: messages between the ranks" : ""));
    comm::testing::check_reductions(group, {.dtypes = {DType::i64}, .counts = {5003}});
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(GlooInit, ComparesLinksOfPairs) {
  const ReservedPort port;
  const auto reports = run_in_processes(2, [&](int rank) {
    become_on_one_host(rank, 2, port.number());
    init({.network = pair_of_links(rank == 0 ? 1e9 : 2e9), .say = [](const std::string&) {}});
  });
  EXPECT_THAT(reports, Each(AllOf(StartsWith("MismatchError: "), HasSubstr("modelled network"))));
}

GridSettings two_by_two() {
  const Link link{.alpha_seconds = 1e-5, .beta_seconds_per_byte = 1e-9};
  return {.cluster =
              Cluster{.name = "square",
                      .dimensions = {{.name = "here", .size = 2, .link = link},
                                     {.name = "there", .size = 2, .link = link, .links = 2, .beside = true}}},
          .algorithm = "round-robin",
          .chunks = 6,
          .interfaces = {"lo", "lo"}};
}

TEST(GlooInit, AGridHasConnectionsForEachDimension) {
  const ReservedPort port;
  const auto reports = run_in_processes(4, [&](int rank) {
    become(rank, 4, port.number());
    Group group = init({.grid = two_by_two(), .backend = "gloo", .say = [](const std::string&) {}});
    EXPECT_THAT(group.description(), HasSubstr("grid 2x2: programs over Gloo"));
    comm::testing::check_reductions(group, {.dtypes = {DType::i64}, .counts = {5003}});
    comm::testing::check_movements(group, {.dtypes = {DType::f32}, .counts = {5003}});
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(GlooInit, AGridTakesMemoryWhereItIsTold) {
  const ReservedPort port;
  for (const int inside : {0, 1}) {
    const auto reports = run_in_processes(4, [&](int rank) {
      become(rank, 4, port.number());
      GridSettings grid = two_by_two();
      grid.interfaces[static_cast<std::size_t>(inside)] = "memory";
      Group group = init({.grid = grid, .backend = "gloo", .say = [](const std::string&) {}});
      EXPECT_THAT(group.description(), AllOf(HasSubstr("shm, 2 ranks"), HasSubstr("programs over Gloo")));
      comm::testing::check_reductions(group, {.dtypes = {DType::i64}, .counts = {5003}});
      comm::testing::check_movements(group, {.dtypes = {DType::f32}, .counts = {5003}});
    });
    EXPECT_THAT(reports, Each("ok"));
  }
}

TEST(GlooInit, ADeathInAGridIsNamedByAll) {
  const ReservedPort port;
  auto reports = run_in_processes(4, [&](int rank) {
    become(rank, 4, port.number());
    Group group = init({.grid = two_by_two(), .backend = "gloo", .say = [](const std::string&) {}});
    const Buffer buffer = group.allocate(4 << 20);
    const View view{.buffer = buffer, .count = 1 << 20};
    group.all_reduce(view, Reduction::sum).wait();
    const Pending next = group.all_reduce(view, Reduction::sum);
    if (rank == 3) raise(SIGKILL);
    next.wait();
    for (;;) group.all_reduce(view, Reduction::sum).wait();
  });
  EXPECT_EQ(reports[3], "killed by signal 9");
  reports.pop_back();
  EXPECT_THAT(reports, Each(AllOf(StartsWith("TransportError"), HasSubstr("3"))));
}

// Killed though a child that has its sockets lives, failed in its own words, or gone in good order.
TEST(GlooInit, AllRanksThrowTheSameOfAFailure) {
  struct Failing {
    std::function<void(const Group& group)> act;
    ::testing::Matcher<const std::string&> expected;
  };
  void* const memory =
      mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& child = *new (memory) pid_t(0);
  const std::vector<Failing> all = {
      {[&](const Group&) {
         const pid_t forked = fork();
         while (forked == 0) pause();
         child = forked;
         raise(SIGKILL);
       },
       MatchesRegex("TransportError: rank 1 \\(pid [0-9]+\\) died: its own output says why")},
      {[](const Group& group) { group.abort("ValueError: poison (train.py:7)"); },
       "TransportError: rank 1 failed: ValueError: poison (train.py:7)"},
      {[](const Group&) {},
       MatchesRegex("TransportError: rank 1 \\(pid [0-9]+\\) left the group while others wait: .*")}};
  for (const char* const backend : {"shm", "gloo"}) {
    for (const Failing& failing : all) {
      const ReservedPort port;
      auto reports = run_in_processes(4, [&](int rank) {
        become_on_one_host(rank, 4, port.number());
        const Group group = init({.backend = backend, .say = [](const std::string&) {}});
        const Group part = group.duplicate();
        group.barrier().wait();
        if (rank == 1) return failing.act(group);
        const Group& used = rank == 2 ? part : group;
        try {
          for (;;) used.barrier().wait();
        } catch (...) {
          if (rank == 0 && child > 0) kill(std::exchange(child, 0), SIGKILL);
          throw;
        }
      });
      reports.erase(reports.begin() + 1);
      EXPECT_THAT(reports, Each(reports[0])) << backend;
      EXPECT_THAT(reports[0], failing.expected) << backend;
    }
  }
}

TEST(GlooInit, SeveralGroupsMayLiveAtOnce) {
  const ReservedPort port;
  const auto reports = run_in_processes(2, [&](int rank) {
    become(rank, 2, port.number());
    Group first = init({.backend = "gloo", .say = [](const std::string&) {}});
    Group second = init({.backend = "gloo", .say = [](const std::string&) {}});
    agree(first, "group", "first");
    agree(second, "group", "second");
    first.barrier().wait();
  });
  EXPECT_THAT(reports, Each("ok"));
}

TEST(GlooInit, NeedsAPlaceToMeet) {
  const auto reports = run_in_processes(1, [](int) {
    become(0, 2, 4711);
    setenv("DEAR_RENDEZVOUS", "x", 1);
    unsetenv("MASTER_ADDR");
    EXPECT_THAT(report_of([] { init({.backend = "gloo"}); }),
                AllOf(StartsWith("ConfigError: rank 0 of 2 (torchrun)"), HasSubstr("MASTER_ADDR"),
                      HasSubstr("MASTER_PORT")));
    become(0, 2, 4711);
    setenv("GLOO_SOCKET_IFNAME", "nosuch0", 1);
    init({.backend = "gloo"});
  });
  EXPECT_THAT(reports, Each(AllOf(StartsWith("ConfigError"), HasSubstr("nosuch0"))));
}

}  // namespace
}  // namespace dear::gloo_init_test
