#include "dear/collective/mpi/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::collective::choices_test {
namespace {

TEST(Choices, SizesAreToldApartByPowersOfFour) {
  EXPECT_EQ(largest_of(0), 64);
  EXPECT_EQ(largest_of(kSizeClasses - 1), std::int64_t{64} << 20);
  EXPECT_EQ(size_class_of(0), 0);
  EXPECT_EQ(size_class_of(64), 0);
  EXPECT_EQ(size_class_of(65), 1);
  EXPECT_EQ(size_class_of(std::int64_t{1} << 40), kSizeClasses - 1);
}

Choices some() {
  Choices choices;
  choices.set(Operation::all_gather, 0, {.algorithm = "pairwise", .segment_bytes = 8192});
  choices.set(Operation::all_gather, 1, {.algorithm = "pairwise", .segment_bytes = 8192});
  choices.set(Operation::all_gather, 10, {.algorithm = kMpisOwn});
  choices.set(Operation::reduce_scatter, 3, {.algorithm = "ring", .segment_bytes = 65'536});
  return choices;
}

TEST(Choices, AreFoundByOperationAndSize) {
  const Choices choices = some();
  ASSERT_NE(choices.find(Operation::all_gather, 100), nullptr);
  EXPECT_EQ(choices.find(Operation::all_gather, 100)->algorithm, "pairwise");
  EXPECT_EQ(choices.find(Operation::all_gather, std::int64_t{1} << 30)->algorithm, kMpisOwn);
  EXPECT_EQ(choices.find(Operation::all_gather, 1000), nullptr);
  EXPECT_EQ(choices.find(Operation::broadcast, 100), nullptr);
}

TEST(Choices, AreSummedUpInRanges) {
  EXPECT_EQ(
      some().summary(),
      "reduce-scatter: ring in segments of 64 KiB up to 4 KiB; all-gather: pairwise in segments of 8 KiB up "
      "to 256 B, MPI's own");
}

TEST(Choices, ComeBackFromTheirFile) {
  const auto found = Choices::parse(some().format("a key"), "a key");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->summary(), some().summary());
}

TEST(Choices, OfAnotherKeyOrFormAreNone) {
  const std::string text = some().format("a key");
  EXPECT_FALSE(Choices::parse(text, "another key"));
  for (const char* bad : {"", "no json", "[]", "{}", R"({"dear-mpi-choices": 1, "key": "a key", "ways": []})",
                          R"({"dear-mpi-choices": 6, "key": "a key"})",
                          R"({"dear-mpi-choices": 6, "key": "a key", "ways": [{"operation": 7}]})"}) {
    EXPECT_FALSE(Choices::parse(bad, "a key")) << bad;
  }
  for (const auto& [from, to] : {std::pair{"all-gather", "all-scatter"},
                                 {"\"size_class\": 10", "\"size_class\": 11"},
                                 {"\"size_class\": 10", "\"size_class\": -1"},
                                 {"pairwise", "nosuch"},
                                 {"8192", "-8192"},
                                 {"8192", "\"8192\""}}) {
    std::string changed = text;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), std::string(from).size(), to);
    EXPECT_FALSE(Choices::parse(changed, "a key")) << from << " to " << to;
  }
  EXPECT_FALSE(Choices::parse(text.substr(0, text.size() / 2), "a key"));
}

}  // namespace
}  // namespace dear::collective::choices_test
