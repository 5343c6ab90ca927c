// Plans every model on every cluster with the defaults of `dear plan`, and says how long each search took,
// what it recommends, and what it left out. Exit 1 where an answer is missing or contradicts itself.
//   bench_all_plans [MODEL...]
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/cluster/presets.h"
#include "dear/tools/cases/planned.h"
#include "dear/tools/cases/testing/sound_plan.h"
#include "dear/workload/zoo/models.h"

namespace {

using dear::cases::PlannedScenario;
using dear::cases::Scenario;

// Returns whether it is sound.
bool plan_one(const std::string& model, const std::string& cluster) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> wrong;
  std::string answer;
  try {
    const Scenario scenario = dear::cases::scenarios({.models = {model}, .clusters = {cluster}}).at(0);
    const PlannedScenario planned =
        dear::cases::plan(scenario, dear::cases::find_options(dear::cases::PlanNames{}));
    wrong = dear::cases::testing::contradictions_in(planned);
    const dear::plan::Row& best = planned.answer.rows[planned.answer.best];
    answer = fmt::format("{}{}{}, {}", best.policy->name, best.fits ? "" : " does not fit",
                         best.runs() ? "" : " (simulated)", dear::format_seconds(best.seconds()));
    for (const dear::plan::LeftOut& one : planned.answer.left_out)
      answer += fmt::format(", without {}", one.policy->name);
  } catch (const dear::Error& error) {
    wrong.emplace_back(error.what());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print("{:<14} {:<32} {:>6.2f} s  {}\n", model, cluster, took.count(), answer);
  for (const std::string& sentence : wrong) fmt::print("  WRONG: {}\n", sentence);
  std::fflush(stdout);
  return wrong.empty();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> models(argv + 1, argv + argc);
  if (models.empty())
    for (const dear::zoo::Model& model : dear::zoo::models()) models.emplace_back(model.name);
  int all = 0, sound = 0;
  for (const std::string& model : models)
    for (const dear::ClusterPreset& preset : dear::clusters()) {
      ++all;
      sound += plan_one(model, preset.cluster.name) ? 1 : 0;
    }
  fmt::print("{} of {} plans are sound\n", sound, all);
  return sound == all ? 0 : 1;
}
