#pragma once

#include "studies/sparse/findings.h"
#include <string>
#include <vector>

namespace dear::studies::sparse {

// A Sweep compares variants of something beside the scheme (momentum, its form, weight decay, a warm-up of
// the ratio), in dense training and with several schemes, and judges a statement on it.
struct Sweep {
  struct Row {
    std::string name;
    std::vector<Setting> variants;  // by column
  };
  std::string title;
  std::vector<std::string> columns;
  std::vector<Row> rows;
  studies::Statement statement;
};

// Judged. ConfigError where a setting was not studied.
std::vector<Sweep> sweeps(const Findings& findings);
// A section of the report, with a table.
std::string text_of(const Sweep& sweep, const Findings& findings);

// All variants of all sweeps, some twice.
std::vector<Setting> settings_of_sweeps();
// Whether a setting has something that only sweeps look at.
bool is_of_sweeps_alone(const Setting& setting);

}  // namespace dear::studies::sparse
