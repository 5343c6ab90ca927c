#include "studies/sparse/sparse.h"

#include "studies/sparse/findings.h"
#include "studies/sparse/report.h"
#include "studies/sparse/stability.h"
#include "studies/sparse/sweeps.h"
#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::studies::sparse {
namespace {

std::vector<Setting> studied_settings() {
  std::vector<Setting> settings = {{}};
  const auto add = [&](const char* scheme, const char* ratio, const char* options) {
    settings.push_back({.method = compression_of(scheme, ratio, options)});
  };
  for (const char* const ratio : kRatios) {
    for (const char* const scheme : kSchemes)
      for (const char* const options : {"", ",ef"}) add(scheme, ratio, options);
    for (const char* const scheme : kRandomSchemes)
      for (const char* const options : {",own", ",own,ef"}) add(scheme, ratio, options);
    for (const char* const scheme : {"top-k", "random-k", "random-block"})
      add(scheme, ratio, ",scope=model,ef");
  }
  for (const Setting& setting : settings_of_sweeps()) {
    const bool is_new = std::none_of(settings.begin(), settings.end(), [&](const Setting& one) {
      return one.method == setting.method && one.optimiser == setting.optimiser;
    });
    if (is_new) settings.push_back(setting);
  }
  return settings;
}

}  // namespace

SparseOptions whole_study() {
  SparseOptions options{.probabilities = {0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 1},
                        .measured = {},
                        .ranks = {4, 64},
                        .bits_per_second = {1e8, 1e9, 1e10, 25e9, 1e11}};
  for (const char* const ratio : kRatios) {
    for (const char* const scheme : kSchemes)
      for (const char* const feedback : {"", ",ef"})
        options.measured.push_back(compression_of(scheme, ratio, feedback));
    for (const char* const scheme : kRandomSchemes)
      for (const char* const feedback : {",own", ",own,ef"})
        options.measured.push_back(compression_of(scheme, ratio, feedback));
  }
  return options;
}

SparseOptions quick_study() {
  SparseOptions options = whole_study();
  options.accuracy = {.task = {.model = {.inputs = 8, .hidden = 16, .classes = 4},
                               .samples_of_worker = 64,
                               .samples_of_validation = 128},
                      .steps = 20,
                      .batch = 8,
                      .seeds = 2,
                      .learning_rates = {0.1, 0.01}};
  options.ranks = {4};
  options.rounds = 1;
  return options;
}

std::vector<studies::StudyFile> study_of_sparse_communication(const SparseOptions& options,
                                                              const Speeds& speeds,
                                                              const studies::Progress& progress) {
  if (options.accuracy.seeds < 1)
    throw ConfigError(fmt::format("{} seeds train nothing: one at least", options.accuracy.seeds));
  const Findings findings{.accuracies = search_learning_rates(studied_settings(), options.accuracy, progress),
                          .limits = stability_limits(options.probabilities),
                          .speeds = speeds};
  std::vector<studies::StudyFile> files = {{"README.md", report_of(options, findings)},
                                           {"results.json", to_json(options, findings)}};
  for (studies::StudyFile& picture : pictures_of(options, findings)) files.push_back(std::move(picture));
  return files;
}

}  // namespace dear::studies::sparse
