#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/ring.h"
#include "dear/tools/bench_collectives/bandwidth_plot.h"
#include "dear/tools/bench_collectives/link_fit.h"
#include "dear/tools/bench_collectives/mpi_launcher.h"
#include "dear/tools/bench_collectives/result.h"

// What becomes of measured times: quantiles, bandwidths, JSON, the picture and the fit.
namespace dear::bench_collectives::results_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

Result result(const std::string& backend, MeasuredOperation operation, std::int64_t bytes, double seconds) {
  return {.backend = backend,
          .operation = operation,
          .ranks = 4,
          .bytes = bytes,
          .seconds = {.median = seconds, .p10 = 0.9 * seconds, .p90 = 1.2 * seconds},
          .verified = true,
          .copies = backend == "memcpy"};
}

std::vector<Result> some_results() {
  std::vector<Result> results;
  for (const std::int64_t bytes : {4, 1 << 10, 1 << 20}) {
    const double seconds = 1e-6 + static_cast<double>(bytes) * 1e-9;
    results.push_back(result("shm", MeasuredOperation::pair, bytes, seconds));
    results.push_back(result("openmpi", MeasuredOperation::all_reduce, bytes, 3 * seconds));
    results.push_back(result("memcpy", MeasuredOperation::pair, bytes, seconds / 2));
  }
  return results;
}

TEST(Results, HaveTheBandwidthsOfNcclTests) {
  const Result pair = result("shm", MeasuredOperation::pair, 1'000'000, 1e-3);
  EXPECT_DOUBLE_EQ(pair.algorithm_bandwidth(), 1e9);
  EXPECT_DOUBLE_EQ(pair.bus_bandwidth(), 1.5e9);
  // A copy moves its vector once, whatever it is compared with.
  EXPECT_DOUBLE_EQ(result("memcpy", MeasuredOperation::pair, 1'000'000, 1e-3).bus_bandwidth(), 1e9);
  EXPECT_EQ(result("shm", MeasuredOperation::barrier, 0, 1e-6).bus_bandwidth(), 0);
}

// The busiest rank sent 3 MB in 1 ms.
TEST(Results, OfUnevenBlocksSayWhatRanksSent) {
  Result uneven = result("shm", MeasuredOperation::all_to_all_v, 8'000'000, 1e-3);
  uneven.sent_bytes = {1'000'000, 3'000'000, 0, 2'000'000};
  EXPECT_DOUBLE_EQ(uneven.algorithm_bandwidth(), 8e9);
  EXPECT_DOUBLE_EQ(uneven.bus_bandwidth(), 3e9);
  const auto json = nlohmann::json::parse(results_json({uneven}));
  EXPECT_EQ(json.at(0).at("sent_bytes"), nlohmann::json(uneven.sent_bytes));
  EXPECT_EQ(json.at(0).at("operation"), "all-to-all-v");
  EXPECT_THROW(fit_cluster({uneven, uneven}, MeasuredOperation::all_to_all_v), ConfigError);
}

TEST(Results, JsonHasOneObjectForEachResult) {
  const auto json = nlohmann::json::parse(results_json(some_results()));
  ASSERT_EQ(json.size(), 9U);
  for (const auto& object : json) {
    std::vector<std::string> keys;
    for (const auto& item : object.items()) {
      keys.push_back(item.key());
    }
    EXPECT_THAT(keys, UnorderedElementsAre("backend", "operation", "dtype", "ranks", "bytes", "seconds",
                                           "busbw_bytes_per_second", "verified"));
    EXPECT_EQ(object["seconds"].size(), 3U);
    EXPECT_LE(object["seconds"]["p10"], object["seconds"]["median"]);
    EXPECT_LE(object["seconds"]["median"], object["seconds"]["p90"]);
  }
  EXPECT_EQ(json[1]["backend"], "openmpi");
  EXPECT_EQ(json[1]["operation"], "all-reduce");
  EXPECT_EQ(json[0]["operation"], "reduce-scatter+all-gather");
  EXPECT_EQ(json[0]["dtype"], "fp32");
  EXPECT_EQ(json[0]["bytes"], 4);
  EXPECT_EQ(json[0]["verified"], true);
  EXPECT_EQ(results_json({}), "[]\n");
  std::vector<Result> results = some_results();
  results[0].waiting_share = 0.0125;
  EXPECT_EQ(nlohmann::json::parse(results_json(results))[0]["waiting_core_share"], 0.0125);
}

// Every element closed in order, and no bare ampersand.
void expect_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const std::size_t end = xml.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = xml.substr(at + 1, end - at - 1);
    EXPECT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    if (tag.starts_with("/")) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (!tag.ends_with("/")) {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(Plot, IsAPictureWithALineForEachContestantAndOperation) {
  const std::string svg = bandwidth_plot(some_results(), "pairs & <others>");
  expect_well_formed(svg);
  EXPECT_THAT(svg, AllOf(HasSubstr("pairs &amp; &lt;others&gt;"), HasSubstr(">shm<"), HasSubstr(">memcpy<"),
                         HasSubstr(">openmpi, all-reduce<"), HasSubstr("GB/s"), HasSubstr(">4 B<"),
                         Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  std::size_t lines = 0;
  for (std::size_t at = svg.find("<polyline"); at != std::string::npos; at = svg.find("<polyline", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, 6U);
}

TEST(Plot, TakesASingleSizeAndRefusesNone) {
  const std::string svg = bandwidth_plot({result("shm", MeasuredOperation::pair, 4096, 1e-5)}, "one");
  expect_well_formed(svg);
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  EXPECT_THAT([] { bandwidth_plot({}, "none"); }, ThrowsMessage<ConfigError>(HasSubstr("nothing to plot")));
}

TEST(FitCluster, FindsTheLinkOfTheFirstContestant) {
  const Link link{.alpha_seconds = 30e-6, .beta_seconds_per_byte = 0.5e-9};
  std::vector<Result> results;
  for (const std::int64_t bytes : {64, 1 << 12, 1 << 16, 1 << 20, 1 << 24}) {
    results.push_back(
        result("shm", MeasuredOperation::pair, bytes, cost::ring_all_reduce_seconds(link, 4, bytes)));
    results.push_back(result("openmpi", MeasuredOperation::pair, bytes, 7));
  }
  const Cluster cluster = fit_cluster(results, MeasuredOperation::pair);
  ASSERT_EQ(cluster.dimensions.size(), 1U);
  const Link& found = cluster.dimensions.front().link;
  EXPECT_NEAR(found.alpha_seconds / link.alpha_seconds, 1, 1e-9);
  EXPECT_NEAR(found.beta_seconds_per_byte / link.beta_seconds_per_byte, 1, 1e-9);
  EXPECT_EQ(cluster.ranks(), 4);
  ASSERT_TRUE(cluster.fit);
  EXPECT_EQ(cluster.fit->backend, "shm");
  EXPECT_EQ(cluster.fit->operation, "reduce-scatter+all-gather");
  EXPECT_EQ(cluster.fit->samples.size(), 5U);
  EXPECT_LT(cluster.fit->worst_residual, 1e-9);
  EXPECT_THAT(fit_text(cluster), AllOf(HasSubstr("alpha 30 us"), HasSubstr("(2 GB/s)"), HasSubstr("1 MiB")));
  EXPECT_EQ(to_json(parse_cluster(to_json(cluster), "again")), to_json(cluster));
}

// The median over sizes of how much longer both take; the link is what was measured without.
TEST(FitCluster, KnowsWhatRanksThatComputeTakeFromIt) {
  const Link link{.alpha_seconds = 30e-6, .beta_seconds_per_byte = 0.5e-9};
  std::vector<Result> results;
  double slower = 1.2;
  for (const std::int64_t bytes : {1 << 12, 1 << 16, 1 << 20}) {
    const double seconds = cost::ring_all_reduce_seconds(link, 4, bytes);
    results.push_back(result("shm", MeasuredOperation::pair, bytes, seconds));
    results.push_back(result("shm", MeasuredOperation::pair, bytes, slower * seconds));
    results.back().computation_slowdown = slower - 0.5;
    slower += 0.2;
  }
  const Cluster cluster = fit_cluster(results, MeasuredOperation::pair);
  EXPECT_NEAR(cluster.dimensions.front().link.beta_seconds_per_byte / link.beta_seconds_per_byte, 1, 1e-9);
  EXPECT_EQ(cluster.fit->samples.size(), 3U);
  EXPECT_NEAR(cluster.interference.communication, 1.4, 1e-9);
  EXPECT_EQ(cluster.interference.computation, 1);  // what was quicker was so by chance
  EXPECT_THAT(fit_text(cluster), HasSubstr("communication takes 1.40 times"));
  EXPECT_EQ(parse_cluster(to_json(cluster), "again"), cluster);
  EXPECT_THAT(results_json(results), HasSubstr("\"computation_slowdown\": 0.7"));
  EXPECT_EQ(results.back().label(), "shm, computing");
}

TEST(FitCluster, EveryOperationOfEqualBlocksHasAModel) {
  for (const MeasuredOperation operation : measured_operations()) {
    const std::vector<Result> results{result("shm", operation, 64, 1e-6),
                                      result("shm", operation, 1 << 20, 1e-3)};
    if (operation == MeasuredOperation::barrier || operation == MeasuredOperation::all_to_all_v) {
      EXPECT_THAT([&] { fit_cluster(results, operation); },
                  ThrowsMessage<ConfigError>(HasSubstr("cannot be fitted")));
    } else {
      EXPECT_LT(fit_cluster(results, operation).fit->worst_residual, 1e-9);
    }
  }
}

TEST(MpiVersion, IsReadFromWhatLaunchersPrint) {
  const std::string open_mpi = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/\n";
  const std::string mpich = "HYDRA build details:\n    Version:                                 4.0.2\n";
  EXPECT_EQ(mpi_version_in("openmpi", open_mpi), "Open MPI 4.1.4");
  EXPECT_EQ(mpi_version_in("mpich", mpich), "MPICH 4.0.2");
  EXPECT_EQ(mpi_version_in("openmpi", mpich), "");
  EXPECT_EQ(mpi_version_in("mpich", open_mpi), "");
  EXPECT_EQ(mpi_version_in("mpich", ""), "");
  EXPECT_THROW(mpi_version_in("lam", ""), ConfigError);
}

}  // namespace
}  // namespace dear::bench_collectives::results_test
