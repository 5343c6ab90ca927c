#include "dear/systems/train_command/tuning_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace dear::train_command {
namespace {

using Json = nlohmann::ordered_json;

Json describe(const TuningReport& report, std::size_t candidate) {
  const tune::Candidate& one = report.sizes.candidates[candidate];
  Json json{{"candidate", one.name}};
  if (!one.values.empty()) json["bucket_bytes"] = std::llround(one.values.front());
  json["buckets"] = report.sizes.groupings[candidate].size();
  return json;
}

}  // namespace

std::size_t optimum_of(const TuningReport& report) {
  const std::vector<double>& seconds = report.true_seconds;
  return static_cast<std::size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin());
}

std::string to_json(const TuningReport& report) { return document_of(report).dump(2) + "\n"; }

Json document_of(const TuningReport& report) {
  Json trials = Json::array();
  for (const tune::Observation& trial : report.trials) {
    trials.push_back(describe(report, trial.candidate));
    trials.back()["seconds"] = trial.seconds;
  }
  Json json{{"model", report.model},    {"cluster", report.cluster},
            {"ranks", report.ranks},    {"policy", report.policy},
            {"method", report.method},  {"on", report.where},
            {"trials", trials},         {"choice", describe(report, report.choice)},
            {"settled", report.settled}};
  if (!report.true_seconds.empty()) {
    const std::size_t optimum = optimum_of(report);
    json["choice"]["true_seconds"] = report.true_seconds[report.choice];
    json["optimum"] = describe(report, optimum);
    json["optimum"]["true_seconds"] = report.true_seconds[optimum];
  }
  if (!report.expectations.empty()) {
    json["expected"] = Json::array();
    for (std::size_t i = 0; i < report.expectations.size(); ++i) {
      const tune::Expectation& expected = report.expectations[i];
      json["expected"].push_back(describe(report, i));
      json["expected"].back()["seconds"] = expected.seconds;
      json["expected"].back()["low_seconds"] = expected.low_seconds();
      json["expected"].back()["high_seconds"] = expected.high_seconds();
    }
  }
  return json;
}

}  // namespace dear::train_command
