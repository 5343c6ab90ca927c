#pragma once

#include "studies/fusionllm/digits.h"
#include "studies/fusionllm/iterations.h"
#include "studies/fusionllm/learning.h"
#include "studies/fusionllm/published.h"
#include "studies/report/progress.h"
#include "studies/report/study_file.h"
#include <cstddef>
#include <vector>

// This study puts what was published of FusionLLM (Tang et al. 2024, arXiv 2410.12707), one model over
// devices that are far apart, beside plans and virtual time of methods/pipeline, and trains a small network
// with what its plans would send.
namespace dear::studies::fusionllm {

struct FusionLlmOptions {
  int seeds = 5;                                // of devices, 1 to so many
  std::size_t assumptions = 9, topologies = 8;  // the first of each table
  std::vector<double> between_megabits{8,   20,   50,   100,  200,
                                       500, 1000, 2500, 5000, 10000};  // bandwidths between sites
  LearningOptions learning{};
};
FusionLlmOptions whole_study();
FusionLlmOptions quick_study();  // seconds

struct FusionLlmFindings {
  Iterations assumed;       // by assumption, every plan
  Iterations by_topology;   // likewise
  Iterations by_bandwidth;  // likewise, between sites
  Iterations by_schedule;   // of OP-Fence with AdaTopK
  Iterations fastest;       // of OP-Fence on the devices that are fastest
  std::vector<LearntWith> learnt;
};
// Plays every model of the published figures, and trains.
FusionLlmFindings find(const PublishedFusionLlm& published, const Digits& digits,
                       const FusionLlmOptions& options, const studies::Progress& progress = {});

// Writes README.md, pictures and results.json.
std::vector<studies::StudyFile> study_of_fusionllm(const PublishedFusionLlm& published, const Digits& digits,
                                                   const FusionLlmOptions& options,
                                                   const studies::Progress& progress = {});

}  // namespace dear::studies::fusionllm
