#pragma once

#include "studies/fusionllm/digits.h"
#include "studies/fusionllm/network.h"
#include "studies/report/progress.h"
#include <cstdint>
#include <vector>

#include "dear/methods/pipeline/messages.h"

// This header tells what compression between stages costs in loss. A network learns digits, its operators on
// devices of several sites, with links drawn from the range of FusionLLM. All that would cross a link goes
// through the codec of the plan, both ways.
namespace dear::studies::fusionllm {

using methods::pipeline::CompressionRule;

struct LearningOptions {
  ResidualShape shape{};
  int devices = 6, sites = 3;
  int micro_batches = 4;
  int samples = 16;  // of a micro-batch
  int steps = 600;
  int seeds = 8;  // 1 to so many: of links, initial parameters, which images are learnt, and their order
  std::vector<double> ratios{3.125, 6.25, 12.5, 25, 50, 100};
  std::vector<double> learning_rates{0.1, 0.03};
  int held_back = 256;  // images by which the learning rate is chosen, and again as many of the test
};

// Learnt is the result of one training.
struct Learnt {
  double validation_loss = 0, test_loss = 0;  // as it was trained, compressed; nats
  double test_accuracy = 0;
  double whole_loss = 0;  // of the test, with nothing compressed
};

// LearntWith is a rule and a ratio, with the learning rate whose mean loss of the validation is the least.
struct LearntWith {
  CompressionRule rule = CompressionRule::none;
  double ratio = 1;
  double learning_rate = 0;
  std::vector<Learnt> by_seed;
  // These count an iteration of each seed: for how long the slowest link is busy, and the elements that
  // travel over all links.
  std::vector<double> slowest_seconds;
  std::vector<double> elements;

  [[nodiscard]] std::vector<double> losses() const;
  [[nodiscard]] double mean_loss() const;
  [[nodiscard]] double mean_accuracy() const;
  [[nodiscard]] double mean_whole_loss() const;
};
double mean_of(const std::vector<double>& values);
// It is null where none was trained.
const LearntWith* find(const std::vector<LearntWith>& all, CompressionRule rule, double ratio);

// Trains dense first, then with each ratio uniformly and by AdaTopK, with the same bits whatever the number
// of threads. ConfigError for fewer images than three times those that are held back.
std::vector<LearntWith> learn(const Digits& digits, const LearningOptions& options,
                              const studies::Progress& progress = {});

}  // namespace dear::studies::fusionllm
