#include "studies/fusionllm/fusionllm.h"

#include "studies/fusionllm/report.h"
#include <algorithm>
#include <utility>

namespace dear::studies::fusionllm {
namespace {

std::vector<Setting> first(const std::vector<Setting>& table, std::size_t count) {
  return {table.begin(), table.begin() + static_cast<std::ptrdiff_t>(std::min(count, table.size()))};
}

}  // namespace

FusionLlmOptions whole_study() { return {}; }

FusionLlmOptions quick_study() {
  return {.seeds = 1,
          .assumptions = 2,
          .topologies = 2,
          .between_megabits = {100, 2500},
          .learning = {.shape = {.width = 32, .blocks = 4},
                       .steps = 60,
                       .seeds = 2,
                       .ratios = {3.125, 6.25},
                       .learning_rates = {0.1}}};
}

FusionLlmFindings find(const PublishedFusionLlm& published, const Digits& digits,
                       const FusionLlmOptions& options, const studies::Progress& progress) {
  const PlayOptions play{.models = published.models, .seeds = options.seeds};
  std::vector<Setting> bandwidths;
  for (const double megabits : options.between_megabits)
    bandwidths.push_back(with_bandwidth_between(1e6 * megabits));
  const std::vector<Asked> ada{{.rule = CompressionRule::ada_top_k}};
  const std::vector<Asked> fastest{{.use = DeviceUse::fastest},
                                   {.rule = CompressionRule::ada_top_k, .use = DeviceUse::fastest}};
  return {.assumed = play_all(first(assumptions(), options.assumptions), play, every_plan(), "assumptions",
                              progress),
          .by_topology =
              play_all(first(topologies(), options.topologies), play, every_plan(), "topologies", progress),
          .by_bandwidth = play_all(bandwidths, play, pictured_plans(), "bandwidths", progress),
          .by_schedule = play_all(schedules(), play, ada, "schedules", progress),
          .fastest = play_all({assumptions().front()}, play, fastest, "fastest", progress),
          .learnt = learn(digits, options.learning, progress)};
}

std::vector<studies::StudyFile> study_of_fusionllm(const PublishedFusionLlm& published, const Digits& digits,
                                                   const FusionLlmOptions& options,
                                                   const studies::Progress& progress) {
  const FusionLlmFindings findings = find(published, digits, options, progress);
  std::vector<studies::StudyFile> files{{"README.md", report_of(published, options, findings)},
                                        {"results.json", to_json(published, findings)}};
  for (studies::StudyFile& picture : pictures_of(published, findings)) files.push_back(std::move(picture));
  return files;
}

}  // namespace dear::studies::fusionllm
