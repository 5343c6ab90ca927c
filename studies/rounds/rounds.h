#pragma once

#include "studies/report/progress.h"
#include "studies/report/study_file.h"
#include "studies/rounds/areas.h"
#include "studies/rounds/learning.h"
#include "studies/rounds/minima.h"
#include "studies/rounds/published.h"
#include <vector>

// This study tells how much less clients and sites send that train by rounds, and what that costs: on convex
// problems whose minimum is known (TAMUNA and its relatives), for the area under the ROC curve (CoDA,
// CODASCA), and for a model of characters (DiLoCo and its relatives).
namespace dear::studies::rounds {

struct RoundsOptions {
  MinimaOptions minima{};
  AreasOptions areas{};
  LearningOptions learning{};
};
RoundsOptions whole_study();
RoundsOptions quick_study();  // seconds, of which figures mean nothing

struct RoundsFindings {
  MinimaFindings minima;
  AreasFindings areas;
  std::vector<Learnt> learnt;
};
RoundsFindings find_rounds(const PublishedRounds& published, const RoundsOptions& options,
                           const studies::Progress& progress = {});

// Writes README.md, pictures and results.json into each of the folders tamuna, coda and diloco. The same
// bytes on one kind of processor.
std::vector<studies::StudyFile> study_of_rounds(const PublishedRounds& published,
                                                const RoundsOptions& options,
                                                const studies::Progress& progress = {});

}  // namespace dear::studies::rounds
