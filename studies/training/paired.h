#pragma once

#include "studies/report/statement.h"
#include <cstddef>
#include <string>
#include <vector>

namespace dear::studies::training {

// By how much two methods differ that learned the same tasks: the mean of the differences task by task, and
// half the width of its confidence interval of 95 % (Student's t), in the unit of what was measured. Tasks
// that are easier or harder for both methods do not count.
struct Paired {
  double mean = 0;
  double half_width = 0;  // infinite for one task, which tells nothing of spread

  [[nodiscard]] std::string text() const;  // "+0.012 ± 0.005"; "+0.012 (one task)"
  // Judges that the methods are no further apart than `bound`: it holds where the whole interval lies within,
  // fails where all of it lies beyond.
  [[nodiscard]] studies::Judged within(double bound) const;
  // Judges that the difference is above `bound`, or that it is no larger, judged likewise.
  [[nodiscard]] studies::Judged above(double bound) const;
  [[nodiscard]] studies::Judged at_most(double bound) const;
};
// `other` less `one`, by task. ConfigError unless both have as many tasks, at least one.
Paired paired(const std::vector<double>& one, const std::vector<double>& other);

// A mean over so many tasks, with its standard deviation: "0.812 ± 0.004"; "0.812 (one task)".
std::string mean_text(double mean, double deviation, std::size_t tasks, int digits = 3);

}  // namespace dear::studies::training
