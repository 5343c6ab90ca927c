#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/tools/cases/kfac_cases.h"

namespace dear::cli {

// Checked settings of `dear replay` for policies of K-FAC.
struct KfacReplaySettings {
  std::vector<cases::Scenario> scenarios;  // one: the model on the cluster that predicts
  cases::KfacOptions options;
  std::int64_t iterations = 0;
  std::string json, trace;  // files, or ""
};

// The settings on all ranks, for agree().
std::string describe(const KfacReplaySettings& settings);

// Replays every strategy on the group, each rank with its own inverses, as it was planned with the costs of
// the cluster. Rank 0 prints what an iteration is made of, replayed and simulated, and writes the files;
// `said` is what was said of the group.
void replay_kfac(const KfacReplaySettings& settings, const Group& group, const std::string& said);

}  // namespace dear::cli
