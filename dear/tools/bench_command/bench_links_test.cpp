#include "dear/tools/bench_command/bench_links.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"

namespace dear::cli::bench_links_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

LinksSettings check_alone(const LinksOptions& options) { return check(options, LaunchEnvironment{}); }

TEST(LinksOptions, HaveDefaults) {
  const LinksSettings settings = check_alone({});
  EXPECT_EQ(settings.workers, 2);
  EXPECT_EQ(settings.times.sizes.front(), 1024);
  EXPECT_EQ(settings.times.sizes.back(), 64 << 20);
  EXPECT_EQ(settings.times.repeat, 9);
  EXPECT_TRUE(settings.flops.empty());
  EXPECT_TRUE(settings.memory.empty());
}

TEST(LinksOptions, AreForAllRanksOrForEach) {
  EXPECT_THAT(check_alone({.workers = 3, .flops = {2e12}}).flops, ElementsAre(2e12, 2e12, 2e12));
  EXPECT_THAT(check_alone({.memory = {"1GiB", "2GiB"}}).memory, ElementsAre(1 << 30, 2LL << 30));
}

struct Refusal {
  std::string name;
  LinksOptions options;
  std::vector<std::string> said;
};
class LinksRefuse : public ::testing::TestWithParam<Refusal> {};

TEST_P(LinksRefuse, WithASentence) {
  try {
    check_alone(GetParam().options);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    for (const std::string& part : GetParam().said) EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Each, LinksRefuse,
    ::testing::Values(Refusal{"alone", {.workers = 1}, {"--workers", "2 or more"}},
                      Refusal{"one_size", {.sizes = {"1KiB"}}, {"--sizes", "two sizes"}},
                      Refusal{"bad_size", {.sizes = {"big"}}, {"--sizes", "'big'"}},
                      Refusal{"repeat", {.repeat = 0}, {"--repeat"}},
                      Refusal{"longest", {.longest = "soon"}, {"--longest", "soon"}},
                      Refusal{"backend", {.backend = "pigeon"}, {"--backend", "'pigeon'"}},
                      Refusal{"network", {.network = "2tincans"}, {"--network", "2tincans"}},
                      Refusal{"devices", {.workers = 3, .network = "two-sites"}, {"--network", "8 devices"}},
                      Refusal{"flops", {.flops = {0}}, {"--flops", "above 0"}},
                      Refusal{
                          "some_flops", {.workers = 3, .flops = {1, 2}}, {"--flops", "2 values for 3 ranks"}},
                      Refusal{"memory", {.memory = {"much"}}, {"--memory", "much"}},
                      Refusal{"no_memory", {.memory = {"0B"}}, {"--memory", "at least one byte"}},
                      Refusal{"output", {.output = "no/such/folder.json"}, {"--output", "no/such"}},
                      Refusal{"same", {.output = "x.json", .json = "./x.json"}, {"--output", "--json"}},
                      Refusal{"timeout", {.timeout = "0s"}, {"--timeout"}}),
    [](const auto& test) { return test.param.name; });

LinksResult result_by_hand() {
  const std::vector<bench_collectives::PairTimes> times = {
      {.from = 0, .to = 1, .trips = {{1, 2e-3}, {1'000'000, 1.002}}},
      {.from = 1, .to = 0, .trips = {{1, 2e-3}, {1'000'000, 0.012}}}};
  return {.cluster =
              bench_collectives::cluster_of({{.name = "a", .flops_per_second = 2e12, .memory_bytes = 1 << 30},
                                             {.name = "b", .flops_per_second = 5e9, .memory_bytes = 2 << 20}},
                                            "by hand", times),
          .times = times,
          .description = "shm, 2 ranks on this host",
          .modelled_network = "",
          .repeat = 7};
}

TEST(LinksResult, IsShownAsMatrices) {
  const std::string text = to_text(result_by_hand());
  EXPECT_THAT(text, AllOf(HasSubstr("bandwidth"), HasSubstr("to 1"), HasSubstr("8 Mb/s"),
                          HasSubstr("800 Mb/s"), HasSubstr("1 ms"), HasSubstr("2000"), HasSubstr("1 GiB"),
                          HasSubstr("quartiles of 7 round trips")));
  EXPECT_LT(text.find(" 8 Mb/s"), text.find("800 Mb/s"));  // rows are senders
}

TEST(LinksResult, IsWrittenWithAllTimes) {
  const auto json = nlohmann::json::parse(to_json(result_by_hand()));
  EXPECT_EQ(json.at("ranks"), 2);
  EXPECT_EQ(json.at("group"), "shm, 2 ranks on this host");
  EXPECT_EQ(json.at("devices").at(1).at("memory_bytes"), 2 << 20);
  const auto& link = json.at("links").at(1);
  EXPECT_EQ(link.at("from"), 1);
  EXPECT_EQ(link.at("to"), 0);
  EXPECT_NEAR(link.at("bytes_per_second").get<double>(), 1e8, 1e5);
  EXPECT_DOUBLE_EQ(link.at("latency_seconds").get<double>(), 1e-3);
  EXPECT_EQ(link.at("round_trips").at(1).at("bytes"), 1'000'000);
}

}  // namespace
}  // namespace dear::cli::bench_links_test
