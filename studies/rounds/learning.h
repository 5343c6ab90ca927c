#pragma once

#include "studies/report/progress.h"
#include "studies/rounds/replicas.h"
#include <string>
#include <vector>

namespace dear::studies::rounds {

struct LearningOptions {
  SitesOptions sites{};
  int seeds = 6;  // 1 to so many: of the language, texts, initial parameters and batches
  std::vector<double> learning_rates{0.004, 0.008, 0.016, 0.032, 0.064};
  int longer = 3;  // times the steps, of the second length that is looked at
};

// A way to exchange on a kind of texts, trained for so many steps.
struct Lesson {
  Exchanges exchanges{};
  bool apart = false;
  int steps = 0;
  friend bool operator==(const Lesson&, const Lesson&) = default;
};

// What a lesson gave with the inner step size whose mean loss of the validation is the least.
struct Learnt {
  Lesson lesson{};
  double learning_rate = 0;
  std::vector<Trained> by_seed{};

  [[nodiscard]] std::vector<double> losses() const;
  [[nodiscard]] double mean_loss() const;
  [[nodiscard]] double deviation() const;
  [[nodiscard]] double sent_bytes() const { return by_seed.front().sent_bytes; }
};
// ConfigError where it was not studied.
const Learnt& find(const std::vector<Learnt>& all, const Lesson& lesson);

// Trains every lesson with every step size and seed, the same bits whatever the number of threads.
// ConfigError for less than one seed or step size.
std::vector<Learnt> learn(const std::vector<Lesson>& lessons, const LearningOptions& options,
                          const studies::Progress& progress = {});

}  // namespace dear::studies::rounds
