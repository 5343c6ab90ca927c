#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/fusion_choice.h"
#include "dear/schedule/policies/policy.h"
#include "dear/tools/cases/compression_choice.h"
#include "dear/tools/cases/scenario.h"

namespace dear::cases {

struct CaseOptions {
  std::vector<const Policy*> policies;
  FusionChoice fusion{.kind = FusionChoice::Kind::usual};
  sim::EvaluateOptions evaluate;
  cost::ClusterTimesOptions times;
  Compressions compressions{};  // each of them, after the policy without
};

// CaseNames are the names and numbers that a user gives to `dear simulate` or dear.simulate().
struct CaseNames {
  std::vector<std::string> policies{"serial", "wfbp", "dear"};
  std::string fusion = "usual";     // see FusionChoice
  std::optional<ByName> buckets{};  // of a schedule file, instead of `fusion`
  std::string algorithm =
      "auto";  // see ClusterTimesOptions; with detail blocks, see EvaluateOptions::program
  std::string detail = "closed-form";
  int jobs = 1;
  std::string placement = "spread";
  CompressionNames compression{};
};
// The options of these names; `evaluate` has the numbers. ConfigError for a name that there is not.
CaseOptions find_options(const CaseNames& names, sim::EvaluateOptions evaluate);

// One policy in one scenario, with one compression or none.
struct Case {
  const Scenario* scenario = nullptr;
  const Policy* policy = nullptr;
  std::string fusion;
  Grouping grouping;
  cost::CollectiveTimes times;
  sim::EvaluateOptions options;
  sim::Evaluation evaluation;
  std::string codec{};  // see Compressions::Modelled

  [[nodiscard]] std::string compression() const {  // its text, empty without one
    return options.compression ? options.compression->compression.text() : std::string();
  }
};

// Every policy in every scenario, and each of them without a compression and with each one, which are
// innermost. The scenarios outlive the cases. ConfigError for a policy that cannot compress.
std::vector<Case> simulate(const std::vector<Scenario>& scenarios, CaseOptions options);

// A list of {model, cluster, ranks, policy, fusion, iteration_seconds, ...}: see docs/formats.md.
std::string to_json(const std::vector<Case>& cases);
// SVG: a panel for each scenario, a bar for each policy.
std::string plot(const std::vector<Case>& cases, const std::string& title);
Trace trace_of(const Case& one);

}  // namespace dear::cases
