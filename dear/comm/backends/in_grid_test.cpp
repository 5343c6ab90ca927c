#include "dear/comm/backends/in_grid.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/testing/conformance.h"
#include "dear/comm/shm/testing/ranks.h"
#include "dear/comm/shm/testing/shm_threads.h"
#include "dear/platform/cluster/cluster_file.h"

// Grids as init() makes them.
namespace dear::in_grid_test {
namespace {

using backends::testing::fresh_rendezvous;
using backends::testing::run_in_processes;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

// Two dimensions beside each other.
Cluster two_by_two(double bytes_per_second = 1e9) {
  const Link link{.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1 / bytes_per_second};
  return {.name = "small",
          .dimensions = {{.name = "node", .size = 2, .link = link},
                         {.name = "rail", .size = 2, .link = link, .links = 2, .beside = true}}};
}

std::vector<std::string> init_as(const std::function<InitOptions(int rank)>& options_of, int ranks,
                                 const std::function<void(Group&)>& body) {
  const std::string rendezvous = fresh_rendezvous();
  return run_in_processes(ranks, [&](int rank) {
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
    setenv("DEAR_RENDEZVOUS", rendezvous.c_str(), 1);
    InitOptions options = options_of(rank);
    options.say = [](const std::string&) {};
    Group group = init(options);
    body(group);
  });
}

TEST(InGrid, RanksOfThisHostAreMeasuredAndServe) {
  EXPECT_THAT(init_as([](int) { return InitOptions{.grid = GridSettings{.sizes = {2, 2}}}; }, 4,
                      [](Group& group) {
                        EXPECT_THAT(group.description(), HasSubstr("grid 2x2"));
                        EXPECT_EQ(group.modelled_network(), "");
                        comm::testing::check_group(group,
                                                   {.counts = {5003}, .order = comm::testing::Order::fixed});
                        comm::testing::check_parts(group);
                      }),
              Each("ok"));
}

TEST(InGrid, AClusterMayBeModelled) {
  for (const char* const algorithm : {"baseline", "themis"}) {
    const GridSettings grid{.cluster = two_by_two(), .modelled = true, .algorithm = algorithm, .chunks = 8};
    EXPECT_THAT(init_as([&](int) { return InitOptions{.grid = grid, .reproducible = true}; }, 4,
                        [](Group& group) {
                          EXPECT_THAT(group.modelled_network(), AllOf(HasSubstr("node"), HasSubstr("rail")));
                          comm::testing::check_group(group, {.dtypes = {DType::f32}, .counts = {5003}});
                        }),
                Each("ok"));
  }
}

TEST(InGrid, AnyBackendMayBePutThere) {
  auto backends = backends::testing::make_shm_threads(4);
  EXPECT_THAT(backends::testing::run_on_threads(
                  4,
                  [&](int rank) {
                    Group group = group_in_grid(std::move(backends[static_cast<std::size_t>(rank)]),
                                                {.cluster = two_by_two()}, {.reproducible = true});
                    EXPECT_THAT(group.description(), HasSubstr("grid 2x2"));
                    comm::testing::check_reductions(group, {.dtypes = {DType::f32}, .counts = {5003}});
                  }),
              Each("ok"));
}

TEST(InGrid, RanksThatDifferAreAMismatch) {
  EXPECT_THAT(init_as(
                  [](int rank) {
                    const std::vector<int> sizes = rank == 2 ? std::vector<int>{4} : std::vector<int>{2, 2};
                    return InitOptions{.grid = GridSettings{.sizes = sizes}};
                  },
                  4, [](Group&) {}),
              Each(AllOf(StartsWith("MismatchError"), HasSubstr("rank 2"), HasSubstr("2x2"))));
}

TEST(InGrid, RefusesWhatCannotBe) {
  const auto refused = [](const GridSettings& settings, const std::string& noun, int ranks = 4) {
    EXPECT_THAT([&] { validate(settings, ranks); }, ThrowsMessage<ConfigError>(HasSubstr(noun)));
  };
  refused({}, "without dimensions");
  refused({.sizes = {2, 0}}, "at least 1");
  refused({.sizes = {2, 3}}, "6 ranks");
  refused({.sizes = {2, 2}, .cluster = two_by_two()}, "not both");
  refused({.sizes = {2, 2}, .modelled = true}, "needs a cluster");
  refused({.sizes = {2, 2}, .algorithm = "hurry"}, "hurry");
  refused({.sizes = {2, 2}, .chunks = 0}, "chunks");
  refused({.sizes = {2, 2}, .interfaces = {"eth0"}}, "interfaces");
  EXPECT_NO_THROW(validate({.cluster = two_by_two(), .modelled = true}, 4));
  EXPECT_THAT(run_in_processes(1,
                               [](int) {
                                 clearenv();
                                 init({.grid = GridSettings{.sizes = {2, 2}}});
                               }),
              Each(AllOf(StartsWith("ConfigError"), HasSubstr("there are 1"))));
  EXPECT_THAT(
      run_in_processes(1,
                       [](int) {
                         clearenv();
                         init({.network = parse_network("1gbit"), .grid = GridSettings{.sizes = {1}}});
                       }),
      Each(AllOf(StartsWith("ConfigError"), HasSubstr("not both"))));
  EXPECT_THAT(
      init_as(
          [](int) { return InitOptions{.grid = GridSettings{.sizes = {2, 1}, .interfaces = {"lo", "lo"}}}; },
          2, [](Group&) {}),
      Each(AllOf(StartsWith("ConfigError"), HasSubstr("gloo"))));
}

TEST(ParseGrid, ReadsSizesOrAFile) {
  EXPECT_THAT(parse_grid("2x4x1").sizes, ElementsAre(2, 4, 1));
  EXPECT_THAT(parse_grid("8").sizes, ElementsAre(8));
  for (const char* const text : {"", "x", "2x", "2xx2", "-1x2", "0x4", "2,2", "2x99999999999", "two"}) {
    EXPECT_THROW(parse_grid(text), ConfigError) << text;
  }
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir());
  const std::string file = (folder / "dear_in_grid_test.json").string();
  write_cluster(two_by_two(), file);
  EXPECT_EQ(parse_grid(file).cluster, two_by_two());
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace dear::in_grid_test
