#include "studies/paper/published.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"

namespace dear::studies::published_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kSmall = R"({
  "format": "dear-published", "version": 1, "source": "made up", "ranks": 8,
  "jobs": [{"model": "resnet50", "batch": 2, "alone_seconds": 0.5}],
  "figures": [{"model": "resnet50", "cluster": "10gbe-64", "method": "plain", "policy": "serial",
               "fusion": "usual", "samples_per_second": 20}],
  "iterations": [{"model": "vgg16", "cluster": "10gbe-64", "ranks": 64, "method": "DDP", "policy": "ddp",
                  "seconds": 0.5, "source": "a talk"}],
  "gains": [{"cluster": "10gbe-64", "largest": 0.25}]})";

std::string with(std::string text, const std::string& old, const std::string& now) {
  return text.replace(text.find(old), old.size(), now);
}

TEST(Published, IsReadWhole) {
  const Published published = parse_published(kSmall, "small.json");
  EXPECT_EQ(published.source, "made up");
  EXPECT_EQ(published.ranks, 8);
  ASSERT_EQ(published.figures.size(), 1U);
  EXPECT_EQ(published.figures[0].policy, "serial");
  EXPECT_EQ(published.figures[0].samples_per_second, 20);
  EXPECT_EQ(published.job_of(published.figures[0]).alone_seconds, 0.5);
  ASSERT_EQ(published.iterations.size(), 1U);
  EXPECT_EQ(published.iterations[0].seconds, 0.5);
  EXPECT_EQ(published.iterations[0].ranks, 64);
  EXPECT_EQ(published.iterations[0].source, "a talk");
  ASSERT_EQ(published.gains.size(), 1U);
  EXPECT_EQ(published.gains[0].largest, 0.25);
}

TEST(Published, SaysWhereAFileIsWrong) {
  const auto refused = [](const std::string& old, const std::string& now) {
    return [=] { parse_published(with(kSmall, old, now), "small.json"); };
  };
  EXPECT_THAT(refused("20}", "0}"),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("small.json"), HasSubstr("figures[0]"))));
  EXPECT_THAT(refused(R"([{"model": "resnet50", "cl)", R"([{"model": "vgg16", "cl)"),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("figures[0].model"), HasSubstr("vgg16"))));
  EXPECT_THAT(refused("\"seconds\": 0.5, ", "\"seconds\": -1, "),
              ThrowsMessage<ConfigError>(HasSubstr("iterations[0].seconds")));
  EXPECT_THAT(refused("\"ranks\": 8,", ""), ThrowsMessage<ConfigError>(HasSubstr("ranks")));
}

// Which of the two counts, nobody could say.
TEST(Published, RefusesTwoOfAKind) {
  const auto refused = [](const std::string& old, const std::string& now) {
    return [=] { parse_published(with(kSmall, old, now), "small.json"); };
  };
  EXPECT_THAT(refused("\"alone_seconds\": 0.5}", R"("alone_seconds": 0.5},
                      {"model": "resnet50", "batch": 2, "alone_seconds": 0.6})"),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("jobs[1]"), HasSubstr("two of model 'resnet50'"))));
  EXPECT_THAT(refused("\"samples_per_second\": 20}", R"("samples_per_second": 20},
              {"model": "resnet50", "cluster": "10gbe-64", "method": "plain", "policy": "wfbp",
               "fusion": "usual", "samples_per_second": 30})"),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("figures[1]"), HasSubstr("two of 'plain'"))));
  EXPECT_THAT(refused("\"largest\": 0.25}", R"("largest": 0.25}, {"cluster": "10gbe-64", "largest": 0.5})"),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("gains[1]"), HasSubstr("two of cluster"))));
}

TEST(Published, OfTheProjectHasFourMethodsForEachJobOnEachCluster) {
  const Published published = read_published(dear::testing::source_file("docs/study/published.json"));
  EXPECT_EQ(published.jobs.size(), 2U);
  EXPECT_EQ(published.figures.size(), 16U);
  EXPECT_EQ(published.iterations.size(), 1U);
  EXPECT_EQ(published.gains.size(), 2U);
}

}  // namespace
}  // namespace dear::studies::published_test
