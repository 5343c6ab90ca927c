#pragma once

#include "studies/paper/published.h"
#include "studies/report/progress.h"
#include "studies/report/study_file.h"
#include <vector>

namespace dear::studies {

// The study of DeAR's paper (Zhang et al., ICDCS 2023, arXiv 2302.12445), simulated: its five models on its
// two networks with 16, 32 and 64 ranks, by every policy with its usual settings. The clusters are calibrated
// to published iterations (calibrate.h); the same on rings over all ranks is an appendix.
// The report, its appendix, a picture for each network, and all numbers as JSON. Always the same bytes.
std::vector<StudyFile> study_of_the_paper(const Published& published, const Progress& progress = {});

}  // namespace dear::studies
