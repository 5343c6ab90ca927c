#pragma once

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <random>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/systems/pipeline/pipeline_model.h"

// Plans that are drawn, as files.
namespace dear::systems::pipeline::testing {

// A plan with these sizes of stages, which lie on `devices` in turn.
struct Cuts {
  std::vector<std::size_t> sizes;
  std::vector<int> devices;
  std::string schedule = "1f1b";
  int micro_batches = 4;
  int more_warm_up = 0;
};
inline Cuts drawn_cuts(std::mt19937_64& random, std::size_t operators, int ranks, int stages_of_rank) {
  Cuts cuts;
  const auto stages = static_cast<std::size_t>(ranks * stages_of_rank);
  std::vector<std::size_t> borders(operators - 1);
  for (std::size_t i = 0; i < borders.size(); ++i) borders[i] = i + 1;
  std::shuffle(borders.begin(), borders.end(), random);
  borders.resize(stages - 1);
  std::sort(borders.begin(), borders.end());
  borders.push_back(operators);
  std::size_t before = 0;
  for (const std::size_t border : borders) cuts.sizes.push_back(border - std::exchange(before, border));
  for (int rank = 0; rank < ranks; ++rank) cuts.devices.push_back(rank);
  std::shuffle(cuts.devices.begin(), cuts.devices.end(), random);
  return cuts;
}

// The file of a plan, gone with this object.
class PlanFile {
 public:
  PlanFile(const PipelineModel& model, const Cuts& cuts)
      : path_(fmt::format("/tmp/dear_pipeline_test_{}_{}.json", ::getpid(), ++count())) {
    std::vector<std::string> stages;
    std::size_t op = 0;
    for (std::size_t stage = 0; stage < cuts.sizes.size(); ++stage) {
      std::vector<std::string> names;
      for (std::size_t i = 0; i < cuts.sizes[stage]; ++i)
        names.push_back(fmt::format("\"{}\"", model.operators()[op++].name));
      const int warm_up =
          std::min(cuts.micro_batches, static_cast<int>(cuts.sizes.size() - stage) + cuts.more_warm_up);
      stages.push_back(fmt::format(
          R"({{"device": "rank {}", {}"operators": [{}]}})", cuts.devices[stage % cuts.devices.size()],
          cuts.schedule == "1f1b" || cuts.schedule == "zb-h1" ? fmt::format("\"warm_up\": {}, ", warm_up)
                                                              : "",
          fmt::join(names, ", ")));
    }
    std::ofstream(path_) << fmt::format(
        R"({{"format": "dear-pipeline-plan", "version": 1, "model": "Net", "method": "drawn", "schedule": "{}",
            "micro_batches": {}, "stages": [{}], "compressed": []}})",
        cuts.schedule, cuts.micro_batches, fmt::join(stages, ", "));
  }
  PlanFile(const PlanFile&) = delete;
  PlanFile& operator=(const PlanFile&) = delete;
  ~PlanFile() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static int& count() {
    static int count = 0;
    return count;
  }
  std::string path_;
};

}  // namespace dear::systems::pipeline::testing
