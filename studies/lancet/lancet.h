#pragma once

#include "studies/lancet/best_fit.h"
#include "studies/lancet/iterations.h"
#include "studies/lancet/published.h"
#include "studies/report/progress.h"
#include "studies/report/study_file.h"
#include <vector>

namespace dear::studies::lancet {

// Options of the study of Lancet (Jiang et al. 2024, MLSys, arXiv 2404.19429). All of it is simulated.
struct LancetOptions {
  IterationOptions iterations{};
  BestFitOptions best_fit{};
};
// The whole study, which takes half a minute of one core; one of a model, a cluster and two numbers of ranks.
LancetOptions whole_study();
LancetOptions quick_study();

struct LancetFindings {
  std::vector<Iteration> iterations;
  std::vector<Iteration> by_pace;
  BestFitOutcome best_fit;
};
LancetFindings find(const LancetOptions& options, const studies::Progress& progress = {});

// The report, pictures, all numbers as JSON: always the same bytes for the same options and figures.
std::vector<studies::StudyFile> study_of_lancet(const PublishedLancet& published,
                                                const LancetOptions& options,
                                                const studies::Progress& progress = {});

}  // namespace dear::studies::lancet
