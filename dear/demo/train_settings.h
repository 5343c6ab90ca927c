#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dear/cluster/network.h"
#include "dear/fusion/grouping.h"

namespace dear::demo {

// What a training job is: a GPT on the characters of a text, trained under one policy, or several that are
// compared.
struct TrainSettings {
  int workers = 1;
  bool compare = false;
  std::vector<std::string> policies;  // one, unless `compare`
  // How buckets are made: given as `fusion`, planned from the times of the first steps, or tuned by trials
  // that begin with `fusion`.
  enum class Buckets : std::uint8_t { given, planned, tuned };
  Buckets buckets = Buckets::tuned;
  Fusion fusion;
  std::string tuning_cache;        // a file; "" for none
  std::optional<Network> network;  // modelled; else the real one
  std::string backend;             // "" for the fastest that reaches all ranks
  bool reproducible = false;
  bool one_copy = false;  // of the parameters, for all workers
  std::int64_t steps = 0;
  std::int64_t batch = 0;  // samples per worker
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t context = 0;
  std::uint64_t seed = 0;
  std::string optimizer;  // one of optimizers()
  double learning_rate = 0;
  int threads = 1;  // of a worker
  double timeout_seconds = 0;
  std::int64_t sample = 0;  // characters to generate at the end
  bool tune = false;        // the job ends when tuning has settled

  [[nodiscard]] std::int64_t characters_per_step() const { return workers * batch * context; }
  // The buckets as options name them: "25MiB", "planned", "auto", "auto=64KiB".
  [[nodiscard]] std::string fusion_text() const;
};

}  // namespace dear::demo
