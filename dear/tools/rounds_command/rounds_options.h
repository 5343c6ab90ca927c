#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/comm/backends/environment.h"
#include "dear/comm/shaped/modelled_network.h"
#include "dear/methods/rounds/auc.h"
#include "dear/methods/rounds/run.h"

namespace dear::rounds_command {

// The options of `dear rounds run` as the user wrote them.
struct RoundsOptions {
  std::string problem = "logistic";
  std::vector<std::string> algorithms{};  // those that suit the problem
  // Of the problem; defaults are its own.
  std::optional<std::int64_t> clients{}, dimension{}, rows{}, nonzeros{};
  std::optional<double> condition{}, heterogeneity{}, positive{}, separation{};
  std::optional<std::string> shards{};
  // Of algorithms; defaults follow from theory.
  std::optional<std::int64_t> cohort{}, batch{}, stages{}, stage_steps{};
  std::vector<std::int64_t> owners{};  // an algorithm that looks at them runs with each
  std::vector<double> local_steps{};   // likewise
  std::optional<double> gamma{}, chi{}, shrink{}, proximal{};
  double alpha = 0;
  double absence = 0;
  bool force = false;
  std::uint64_t seed = 1;
  std::optional<double> error{};
  std::int64_t rounds = 1'000'000;
  std::optional<std::int64_t> workers{};  // 1; under a launcher as many as it started
  std::string backend{};
  std::optional<std::string> network{}, json{}, plot{};
  std::string timeout = "120s";
};

// Checked options: no later step refuses any of them.
struct RoundsSettings {
  std::shared_ptr<const methods::rounds::Problem> problem;
  const methods::rounds::AucProblem* auc = nullptr;  // the problem, where it is one of AUC
  std::string described;                             // the problem in words
  std::vector<methods::rounds::Settings> algorithms;
  methods::rounds::Target target;
  double alpha = 0;
  std::uint64_t seed = 1;
  int workers = 1;
  std::string backend;
  std::optional<ModelledNetwork> network;
  std::string json, plot;  // "" for none
  double timeout_seconds = 0;
};
// Draws the problem. ConfigError, one sentence, for options that cannot be, and for those that nothing would
// look at.
RoundsSettings check(const RoundsOptions& options, const LaunchEnvironment& environment);

}  // namespace dear::rounds_command
