#include "studies/rounds/rounds.h"

#include "studies/rounds/report.h"
#include <utility>

namespace dear::studies::rounds {

RoundsOptions whole_study() { return {}; }

RoundsOptions quick_study() {
  RoundsOptions options;
  options.minima.large = {{.clients = 20, .dimension = 40, .condition = 300}};
  options.minima.large_owners = {10, 4, 2};
  options.minima.large_cohort = 10;
  options.minima.small.condition = 100;
  options.minima.conditions = {30, 100};
  options.minima.cohorts = {10, 20};
  options.minima.owners = {2, 4, 20};
  options.minima.draws = 1;
  options.minima.small_error = 1e-6;
  options.minima.error = 1e-5;
  options.minima.rate_runs = 2;
  options.minima.rate_rounds = 10;
  options.areas.shape.rows = 50;
  options.areas.every = {1, 32, 128};
  options.areas.seeds = 1;
  options.areas.steps = options.areas.exact_steps = 256;
  options.areas.clients = {1, 4};
  options.areas.client_seeds = 1;
  options.learning.sites.characters = 5000;
  options.learning.sites.held_back = 256;
  options.learning.sites.model = {.context = 3, .embedding = 4, .hidden = 8};
  options.learning.sites.steps = 40;
  options.learning.sites.batch = 4;
  options.learning.seeds = 2;
  options.learning.learning_rates = {0.01};
  options.learning.longer = 2;
  return options;
}

RoundsFindings find_rounds(const PublishedRounds& published, const RoundsOptions& options,
                           const studies::Progress& progress) {
  return {.minima = find_minima(options.minima, progress),
          .areas = find_areas(options.areas, progress),
          .learnt = learn(lessons_of(published, options.learning), options.learning, progress)};
}

std::vector<studies::StudyFile> study_of_rounds(const PublishedRounds& published,
                                                const RoundsOptions& options,
                                                const studies::Progress& progress) {
  const RoundsFindings findings = find_rounds(published, options, progress);
  std::vector<studies::StudyFile> files{
      {"tamuna/README.md", page_of_minima(options.minima, findings.minima)},
      {"tamuna/results.json", to_json(findings.minima)},
      {"coda/README.md", page_of_areas(options.areas, findings.areas)},
      {"coda/results.json", to_json(findings.areas)},
      {"diloco/README.md", page_of_learning(published, options.learning, findings.learnt)},
      {"diloco/results.json", to_json(findings.learnt)}};
  for (studies::StudyFile& picture : pictures_of(findings)) files.push_back(std::move(picture));
  return files;
}

}  // namespace dear::studies::rounds
