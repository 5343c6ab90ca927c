#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/comm/backends/init.h"
#include "dear/platform/cluster/pair_cluster.h"
#include "dear/schedule/codec/compression.h"
#include "dear/schedule/policies/fusion_choice.h"

namespace dear::train_command {

// The part of a training job that options give as it is: a GPT on the characters of a text, and how it is
// trained. Its defaults are those of the options.
struct GptJob {
  std::string backend{};  // "" for the fastest that reaches all ranks
  bool reproducible = false;
  bool one_copy = false;    // of the parameters, for all workers
  std::int64_t verify = 0;  // steps between comparisons of parameters; 0 for none
  std::int64_t steps = 400;
  std::int64_t batch = 8;  // samples per worker
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  std::int64_t context = 64;
  std::uint64_t seed = 1;
  bool tune = false;  // the job ends when tuning has converged, and reports its trials
};

// K-FAC before the optimiser of a job, as options name it; see systems/kfac/kfac.h.
struct KfacJob {
  std::string strategy = "spd-kfac";
  double damping = 0.03;
  double ema = 0.95;
  std::optional<double> kl_clip = 1e-3;
  std::int64_t factor_every = 1, inverse_every = 1;  // steps
  bool pi_correction = false;
  std::vector<std::string> exclude{};

  [[nodiscard]] std::string text() const;
};

// Mixtures of experts in place of perceptrons of the GPT, as options name them; see systems/moe/mixture.h.
struct MoeJob {
  std::int64_t experts = 0;  // of all workers
  std::string gate = "switch", overlap = "none";
  double capacity_factor = 1.25;
  int parts = 1;
  std::int64_t every = 2;        // blocks
  double balance_weight = 0.01;  // of the load-balancing loss

  [[nodiscard]] std::string text() const;
};

// Where and how often a job saves checkpoints.
struct Saving {
  std::string directory{};  // "" for none
  std::int64_t every = 100;
  int keep = 2;
  bool resume = false;  // from the newest, where there is one
};

// A GPT whose layers lie on the workers, as options of `dear pipeline train` name it; see
// systems/pipeline/pipeline.h. A step has `gpt.batch` samples of all workers.
struct PipelineJob {
  GptJob gpt{};
  int micro_batches = 8;
  int stages_per_worker = 1, replicas = 1;
  std::string schedule = "1f1b", planner = "op-fence", compression = "none";
  double ratio = 100;
  std::string plan_file{};               // in place of the above; "" for none
  std::optional<PairCluster> cluster{};  // the modelled links of workers
  std::string optimizer = "adamw";
  double learning_rate = 0;
  double clip = 0;  // the most that the norm of gradients may be; 0: they are as they are
  Saving saving{};
  bool record_trace = false;

  [[nodiscard]] std::string text() const;  // that tells jobs apart
};

// The settings of a training job: a GPT on the characters of a text, trained under one policy, or under
// several that are compared, or with several compressions.
struct TrainSettings {
  GptJob job;
  int workers = 1;
  bool compare = false;
  std::vector<std::string> policies;  // one, unless `compare`
  // How gradients travel, by run: one for each policy; none for dense ones. What a comparison is of.
  std::vector<std::optional<Compression>> compressions;
  bool compares_compressions = false;
  FusionChoice buckets;
  std::string tuning_cache;                // a file; "" for none
  std::string metrics;                     // a file that lines of each step are appended to; "" for none
  std::optional<ModelledNetwork> network;  // modelled; else the real one
  std::optional<GridSettings> grid;        // of the ranks
  std::string optimizer;                   // one of optimizers(), or "kfac": sgd after K-FAC
  std::optional<KfacJob> kfac;
  std::optional<MoeJob> moe;
  double learning_rate = 0;
  int threads = 1;  // of a worker
  double timeout_seconds = 0;
  std::int64_t sample = 0;  // characters to generate at the end
  Saving saving{};

  [[nodiscard]] std::int64_t characters_per_step() const { return workers * job.batch * job.context; }
  // The name that tells a run from the others: its policy, or its compression where those are compared.
  [[nodiscard]] std::string name_of_run(std::size_t run) const;
};

// The compression as options name it, or kDense for none.
inline constexpr std::string_view kDense = "dense";
std::string text_of(const std::optional<Compression>& compression);

}  // namespace dear::train_command
