#pragma once

#include <string>
#include <vector>

#include "dear/tools/cases/kfac_cases.h"

namespace dear::cases {

// A KfacAnswer says how long iterations with K-FAC take for a model on a cluster, by strategy, and names the
// fastest.
struct KfacAnswer {
  struct Row {
    std::string fusion;     // of factors, as KfacNames::factor_fusion
    std::string placement;  // of inverses
    KfacCase one;
    std::string why;  // what an iteration waits for
  };
  KfacJob on;
  std::vector<Row> rows;  // with curvature anew in every iteration, the fastest first
  // The fastest, with curvature renewed less often.
  std::vector<KfacCase> seldom;
  std::string sgd_policy;            // the fastest for plain gradients, of those that train
  double sgd_seconds = 0;            // its iteration
  std::vector<std::string> verdict;  // sentences: what to use, what is hidden, why inverses are placed so,
                                     // when K-FAC pays
};

struct KfacPlanOptions {
  std::vector<methods::kfac::Strategy> strategies{};  // to choose from; all when empty
  std::vector<methods::kfac::Intervals> seldom{{.factors = 1, .inverses = 10},
                                               {.factors = 10, .inverses = 100}};
  cost::ClusterTimesOptions times{};
};

// Strategies whose factors travel under the passes are tried with each fusion of factors. On one rank, where
// nothing travels, there is one row. The scenario outlives what is returned. ConfigError as kfac_job().
KfacAnswer plan_kfac(const Scenario& scenario, const KfacPlanOptions& options);

// A list of {model, cluster, ranks, rows, seldom, sgd, verdict}: see docs/formats.md.
std::string to_json(const std::vector<KfacAnswer>& answers);

}  // namespace dear::cases
