#pragma once

#include "studies/report/study_file.h"
#include <string>
#include <vector>

namespace dear::studies::kfac {

// The page on K-FAC beside SGD and AdamW, and its picture, of what bench/kfac/convergence.py has measured:
// convergence.md, convergence.svg. ConfigError that names a mistake in the file.
std::vector<studies::StudyFile> convergence_of(const std::string& path);

}  // namespace dear::studies::kfac
