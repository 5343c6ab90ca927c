// The results that lie beside the pages of studies: docs/formats.md says how each begins.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/os/atomic_file.h"
#include "dear/base/os/testing/paths.h"

namespace dear::studies::committed_results_test {
namespace {

TEST(CommittedResults, BeginWithTheVersionAndWhatIsModelled) {
  int read = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(dear::testing::source_file("docs/study"))) {
    if (entry.path().filename() != "results.json") continue;
    SCOPED_TRACE(entry.path().string());
    const std::string text = os::read_file(entry.path().string());
    const nlohmann::ordered_json results = nlohmann::ordered_json::parse(text);
    ASSERT_TRUE(results.is_object());
    std::vector<std::string> names;
    for (const auto& [name, value] : results.items()) names.push_back(name);
    ASSERT_GT(names.size(), 2U);
    EXPECT_EQ(names[0], "dear_version");
    EXPECT_TRUE(results["dear_version"].is_string());
    EXPECT_EQ(names[1], "modelled");
    for (const auto& part : results["modelled"])
      EXPECT_THAT(part.get<std::string>(), ::testing::AnyOf("computation", "communication"));
    EXPECT_EQ(text.find("dear_version", text.find("dear_version") + 1), std::string::npos) << "once";
    ++read;
  }
  EXPECT_GE(read, 5);  // of the paper, and of four others
}

}  // namespace
}  // namespace dear::studies::committed_results_test
