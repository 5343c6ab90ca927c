#include "dear/predict/tune/cache.h"

#include <filesystem>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"

namespace dear::tune::cache_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Learned kLearned{.choice = "planned",
                       .measured = {{"64KiB", 0.125}, {"planned", 0.1}},
                       .planned = {{"fc.weight", "fc.bias"}, {"out.weight"}},
                       .planned_chunk_bytes = {0, 4096}};

std::string in_temporary_folder(const char* name) {
  return (std::filesystem::temp_directory_path() / (std::string(name) + std::to_string(::getpid()))).string();
}

TEST(Cache, KeepsWhatEachJobLearned) {
  const std::string path = in_temporary_folder("dear_cache");
  EXPECT_EQ(Cache::read(path).find("a"), nullptr);  // no file yet
  Cache cache;
  cache.put("a", {.choice = "1MiB", .measured = {{"1MiB", 2}}, .planned = {}});
  cache.put("b", kLearned);
  cache.put("a", {.choice = "all", .measured = {{"all", 1}}, .planned = {}});
  cache.write(path);
  const Cache again = Cache::read(path);
  std::filesystem::remove(path);
  ASSERT_NE(again.find("a"), nullptr);
  EXPECT_EQ(again.find("a")->choice, "all");
  const Learned* const learned = again.find("b");
  ASSERT_NE(learned, nullptr);
  EXPECT_EQ(learned->choice, "planned");
  ASSERT_EQ(learned->measured.size(), 2U);
  EXPECT_EQ(learned->measured[0].candidate, "64KiB");
  EXPECT_EQ(learned->measured[0].seconds, 0.125);
  EXPECT_EQ(learned->planned, kLearned.planned);
  EXPECT_EQ(learned->planned_chunk_bytes, kLearned.planned_chunk_bytes);
  EXPECT_EQ(again.find("c"), nullptr);
  EXPECT_EQ(again.to_json(), cache.to_json());
}

TEST(Cache, SaysWhatIsWrongWithAFile) {
  const auto refuses = [](const std::string& jobs, const char* why) {
    const std::string text = R"({"format": "dear-tuning-cache", "version": 1, "jobs": )" + jobs + "}";
    EXPECT_THAT([&] { Cache::parse(text, "c.json"); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("c.json"), HasSubstr(why))))
        << jobs;
  };
  refuses("3", "jobs");
  refuses(R"([{"key": "a"}])", "jobs[0]");
  refuses(R"([{"key": "a", "choice": 1, "measured": [], "planned": []}])", "jobs[0].choice");
  refuses(R"([{"key": "a", "choice": "x", "measured": [{"candidate": "x", "seconds": 0}], "planned": []}])",
          "jobs[0].measured[0].seconds");
  refuses(R"([{"key": "a", "choice": "x", "measured": [], "planned": [["a"], [2]]}])",
          "jobs[0].planned[1][0]");
  refuses(
      R"([{"key": "a", "choice": "x", "measured": [], "planned": [["a"]], "planned_chunk_bytes": [1, 2]}])",
      "jobs[0].planned_chunk_bytes");
  EXPECT_THROW(Cache::parse("", "c.json"), ConfigError);
  EXPECT_THROW(Cache::parse(R"({"format": "dear-workload", "version": 1})", "c.json"), ConfigError);
  EXPECT_THROW(Cache::read("/"), ConfigError);
}

TEST(Cache, RefusesWhatStandsTwice) {
  const auto with = [](const std::string& jobs) {
    return R"({"format": "dear-tuning-cache", "version": 1, "jobs": [)" + jobs + "]}";
  };
  const auto job = [](const std::string& measured) {
    return R"({"key": "a", "choice": "all", "planned": [], "measured": [)" + measured + "]}";
  };
  const std::string one = R"({"candidate": "all", "seconds": 1})";
  EXPECT_NO_THROW(Cache::parse(with(job(one)), "c.json"));
  EXPECT_THAT([&] { Cache::parse(with(job(one + ", " + one)), "c.json"); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("measured[1].candidate"), HasSubstr("twice"))));
  EXPECT_THAT([&] { Cache::parse(with(job(one) + ", " + job(one)), "c.json"); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("jobs[1].key"), HasSubstr("another job"))));
}

TEST(Cache, ThatCannotBeWrittenIsAnError) {
  EXPECT_THROW(Cache().write("/nowhere/at/all.json"), ConfigError);
}

}  // namespace
}  // namespace dear::tune::cache_test
