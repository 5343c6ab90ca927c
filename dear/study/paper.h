#pragma once

#include <string>
#include <vector>

namespace dear::study {

// The study of DeAR's paper (Zhang et al., ICDCS 2023, arXiv 2302.12445), simulated: its five models on its
// two networks with 16, 32 and 64 ranks, by every policy with its usual settings.
struct StudyFile {
  std::string name;  // "README.md"
  std::string content;
};
// The report, a picture for each network, and all numbers as JSON. Always the same bytes.
std::vector<StudyFile> study_of_the_paper();

}  // namespace dear::study
