#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/methods/kfac/predict.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/tools/cases/scenario.h"

namespace dear::cases {

// KfacNames are the names and numbers that a user gives to `dear simulate` for policies of K-FAC.
struct KfacNames {
  std::vector<std::string> policies{};   // of methods::kfac::strategies()
  std::string factor_fusion{};           // alone, threshold, rule, exact, together; "": the policy's own
  std::string inverse_placement{};       // local, round-robin, balanced, planned; "": the policy's own
  methods::kfac::Intervals intervals{};  // how often curvature is renewed
  std::string fusion = "25MiB";          // of gradients: see Fusion::parse()
  std::string algorithm = "auto";        // see ClusterTimesOptions
};
bool is_kfac(std::string_view policy);
// Returns `policy`, the name of a policy for plain gradients. ConfigError for a policy of K-FAC, and for a
// name that there is not: it names the policies of K-FAC and what takes them.
std::string_view plain_policy(std::string_view policy);
// They are as KfacNames has them: "rule", "planned".
std::string name_of(methods::kfac::FusionRule fusion);
std::string name_of(methods::kfac::PlacementRule placement);

struct KfacOptions {
  std::vector<methods::kfac::Strategy> strategies;
  methods::kfac::Intervals intervals{};
  Fusion fusion;
  cost::ClusterTimesOptions times{};
};
// ConfigError for a name that there is not, and for intervals that cannot be.
KfacOptions find_options(const KfacNames& names);

// A model with K-FAC on a cluster: what no strategy changes.
struct KfacJob {
  const Scenario* scenario = nullptr;
  methods::kfac::Job job;
  std::vector<std::string> left_out{};  // layers too large for curvature
  methods::kfac::Costs costs;
  Grouping grouping;  // of gradients
};
// The scenario outlives it. ConfigError for a workload that is given with its times, since no shapes are
// known, for a model without such a layer, and for a cluster with stragglers.
KfacJob kfac_job(const Scenario& scenario, const Fusion& fusion, const cost::ClusterTimesOptions& times);
// A sentence on KfacJob::left_out, which names three layers at most; "" where no layer is left out.
std::string describe_left_out(const KfacJob& on);

struct KfacCase {
  KfacJob on;
  methods::kfac::Strategy strategy;
  methods::kfac::Intervals intervals{};
  methods::kfac::Plan plan;
  methods::kfac::Prediction prediction;

  [[nodiscard]] std::size_t inverses_sent() const;  // by the rank that has computed one
};
KfacCase simulate(const KfacJob& on, const methods::kfac::Strategy& strategy,
                  const methods::kfac::Intervals& intervals);
// Every strategy in every scenario, strategies innermost.
std::vector<KfacCase> simulate(const std::vector<Scenario>& scenarios, const KfacOptions& options);

// A list of {model, cluster, ranks, policy, ...}: see docs/formats.md.
std::string to_json(const std::vector<KfacCase>& cases);
// SVG: a panel for each scenario, a bar for each strategy.
std::string plot(const std::vector<KfacCase>& cases, const std::string& title);
Trace trace_of(const KfacCase& one);  // of rank 0, with the title of a trace of `dear simulate`

}  // namespace dear::cases
