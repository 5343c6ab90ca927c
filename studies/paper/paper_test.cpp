#include "studies/paper/paper.h"

#include "studies/paper/paper_tables.h"
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/os/testing/paths.h"
#include "dear/schedule/policies/policy.h"

namespace dear::studies::paper_test {
namespace {

using ::testing::HasSubstr;

class OfThePaper : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    files = study_of_the_paper(read_published(dear::testing::source_file("docs/study/published.json")));
  }
  static const std::string& content(const std::string& name) {
    for (const StudyFile& file : files)
      if (file.name == name) return file.content;
    throw std::out_of_range(name);
  }
  static std::vector<StudyFile> files;
};
std::vector<StudyFile> OfThePaper::files;

TEST_F(OfThePaper, HasAReportAnAppendixPicturesAndNumbers) {
  std::vector<std::string> names;
  for (const StudyFile& file : files) names.push_back(file.name);
  EXPECT_THAT(names, ::testing::ElementsAre("README.md", "rings.md", "calibrated-10gbe-64.svg",
                                            "calibrated-100gbib-64.svg", "10gbe-64.svg", "100gbib-64.svg",
                                            "results.json"));
}

TEST_F(OfThePaper, NamesEveryPolicyModelAndNetwork) {
  const std::string report = content("README.md");
  for (const Policy& policy : policies()) {
    EXPECT_THAT(report, HasSubstr("| " + std::string(policy.name) + " |"));
    EXPECT_THAT(report, HasSubstr(std::string(policy.source)));
  }
  for (const char* const model : {"resnet50", "densenet201", "inception-v4", "bert-base", "bert-large"})
    EXPECT_THAT(report, HasSubstr(model));
  EXPECT_THAT(report, HasSubstr("(calibrated-10gbe-64.svg)"));
  EXPECT_THAT(report, HasSubstr("(calibrated-100gbib-64.svg)"));
  EXPECT_THAT(content("rings.md"), HasSubstr("(10gbe-64.svg)"));
  EXPECT_THAT(report, HasSubstr("up to 83 %"));
  EXPECT_THAT(report, HasSubstr("up to 15 %"));
  EXPECT_THAT(report, HasSubstr("## From what the headline comes"));
  EXPECT_THAT(content("10gbe-64.svg"), HasSubstr("<svg"));
  EXPECT_THAT(content("100gbib-64.svg"), HasSubstr("bert-large on 100gbib-64, 64 ranks"));
}

// Five models, two networks twice, three numbers of ranks; nothing is below its bound or its computation.
TEST_F(OfThePaper, HasAllNumbers) {
  const auto list = nlohmann::json::parse(content("results.json")).at("cases");
  constexpr std::size_t kPlanned = 3;  // policies that are shown with planned buckets too
  EXPECT_EQ(list.size(), 5 * 4 * 3 * (policies().size() + kPlanned));
  std::set<std::string> cases;
  for (const auto& row : list) {
    cases.insert(row.at("model").get<std::string>() + row.at("cluster").get<std::string>() +
                 row.at("ranks").dump() + row.at("policy").get<std::string>() +
                 row.at("fusion").get<std::string>());
    EXPECT_GE(row.at("iteration_seconds").get<double>(), row.at("bound_seconds").get<double>() * (1 - 1e-9))
        << row.dump();
    EXPECT_GE(row.at("iteration_seconds").get<double>(), row.at("compute_seconds").get<double>() * (1 - 1e-9))
        << row.dump();
  }
  EXPECT_EQ(cases.size(), list.size());
}

// On the calibrated networks no policy that replicates parameters, whatever its buckets, takes four times as
// long as nothing overlapped.
TEST_F(OfThePaper, HasFiguresThatCanBeBelieved) {
  std::map<std::string, double> serial;
  const auto list = nlohmann::json::parse(content("results.json")).at("cases");
  const auto place = [](const nlohmann::json& row) {
    return row.at("model").get<std::string>() + row.at("cluster").get<std::string>() + row.at("ranks").dump();
  };
  for (const auto& row : list)
    if (row.at("policy") == "serial") serial[place(row)] = row.at("iteration_seconds").get<double>();
  for (const auto& row : list) {
    if (!row.at("cluster").get<std::string>().starts_with("calibrated-")) continue;
    EXPECT_LT(row.at("iteration_seconds").get<double>(), 4 * serial.at(place(row))) << row.dump();
  }
}

// The verdict on the reported gain: reached over the fastest rival, over some rival, over none.
TEST(Verdicts, OfTheGainsCanFail) {
  const PaperTables tables("calibrated-10gbe-64", "nccl");
  EXPECT_THAT(tables.gains(0.01), HasSubstr("as large a gain as is reported is there even over the fastest"));
  EXPECT_THAT(tables.gains(0.4), HasSubstr("is there over some rival, and not over the fastest"));
  EXPECT_THAT(tables.gains(100), HasSubstr("No rival modelled here loses as much"));
}

}  // namespace
}  // namespace dear::studies::paper_test
