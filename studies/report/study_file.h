#pragma once

#include <string>

namespace dear::studies {

// A file that a study writes into its folder.
struct StudyFile {
  std::string name;  // "README.md"
  std::string content;
};

}  // namespace dear::studies
