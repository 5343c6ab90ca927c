#include "studies/homomorphic/homomorphic.h"

#include "studies/homomorphic/findings.h"
#include "studies/homomorphic/report.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::studies::homomorphic {
namespace {

std::vector<Method> studied_methods() {
  std::vector<Method> methods = {std::nullopt};
  for (const char* const text : {kSketch, kExactSketch, kTopK, kRandomBlock})
    methods.emplace_back(Compression::parse(text));
  return methods;
}

}  // namespace

HomomorphicOptions whole_study() {
  const std::vector<double> densities = {0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.185, 0.25};
  HomomorphicOptions options{
      .recovery = {.keys = {100, 1000, 10'000, 30'000},
                   .rows_per_key = {1.1, 1.15, 1.2, 1.21, 1.22, 1.23, 1.24, 1.25, 1.3, 1.5, 2}},
      .losslessness = {},
      .sizes = {.densities = densities},
      .unions = {.workers = {2, 4, 8, 16, 64}, .densities = {0.01, 0.05}},
      .learning = {.learning_rates = {4, 2, 1, 0.5, 0.25, 0.125}},
      .speeds = {.densities = densities, .ranks = {4, 64}, .rows_per_key = {1.25, 1.5, 2}},
      .bits_per_second = {1e8, 1e9, 1e10, 25e9, 1e11}};
  return options;
}

HomomorphicOptions quick_study() {
  HomomorphicOptions options = whole_study();
  options.recovery.keys = {100, 1000};
  options.recovery.trials = 30;
  options.losslessness.elements = 2000;
  options.losslessness.trials = 3;
  options.losslessness.elements_of_floats = 40'000;
  options.losslessness.trials_of_floats = 2;
  options.sizes.elements = options.traffic.elements = 1 << 20;
  options.unions = {.elements = 1 << 14, .workers = {2, 4}, .densities = {0.05}};
  options.learning = {.model = {.users = 200, .items = 100, .width = 8, .first = 8, .second = 4},
                      .batch = 8,
                      .steps = 20,
                      .seeds = 2,
                      .held_back = 256,
                      .learning_rates = {1, 0.25}};
  options.speeds.densities = {0.01, 0.05};
  options.speeds.ranks = {4};
  options.speeds.rows_per_key = {2};
  options.speeds.recommender = {.users = 4000, .items = 2000};
  options.speeds.batch = 32;
  options.speeds.rounds = 1;
  return options;
}

std::vector<studies::StudyFile> study_of_homomorphic_compression(const HomomorphicOptions& options,
                                                                 const Speeds& speeds,
                                                                 const studies::Progress& progress) {
  if (options.learning.seeds < 1)
    throw ConfigError(fmt::format("{} seeds train nothing: one at least", options.learning.seeds));
  const Findings findings{.recovery = recovery_rates(options.recovery, progress),
                          .exact = exact_sums(options.losslessness),
                          .floats = float_errors(options.losslessness),
                          .sizes = sizes_by_density(options.sizes),
                          .index_border = index_border(options.sizes),
                          .unions = unions(options.unions),
                          .learned = search_learning_rates(studied_methods(), options.learning, progress),
                          .speeds = speeds};
  std::vector<studies::StudyFile> files = {{"README.md", report_of(options, findings)},
                                           {"results.json", to_json(options, findings)}};
  for (studies::StudyFile& picture : pictures_of(options, findings)) files.push_back(std::move(picture));
  return files;
}

}  // namespace dear::studies::homomorphic
