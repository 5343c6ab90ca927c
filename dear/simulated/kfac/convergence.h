#pragma once

#include <string>
#include <vector>

#include "dear/study/study_file.h"

namespace dear::simulated::kfac {

// The page on K-FAC beside SGD and AdamW, and its picture, of what bench/kfac/convergence.py has measured:
// convergence.md, convergence.svg. ConfigError that names a mistake in the file.
std::vector<study::StudyFile> convergence_of(const std::string& path);

}  // namespace dear::simulated::kfac
