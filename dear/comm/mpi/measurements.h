#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "dear/comm/mpi/choices.h"

namespace dear::backends {

// [Note: sums across hosts] All ranks sending to all at once, as the order of ranks wants it, gets less out
// of a wire than neighbours do. So large sums go around a ring where hosts are several and the order of ranks
// is not asked for: by this rule and not by measurement, since the order of a sum shows in its last bit. How
// long its segments are does not show, and is measured.
inline constexpr std::int64_t kLargestSumInOrder = 256 * 1024;
inline constexpr const char* kAround = "ring";

// The result of measuring one collective at one size.
struct MeasuredChoice {
  message_programs::AlgorithmChoice choice;  // the best
  double seconds = 0;                        // that it took, on the slowest rank; see usual_seconds()
  std::optional<message_programs::AlgorithmChoice> second;  // the next best, to compare it with again
};

// Measurements holds the quicker way that was measured for each collective (reduce_scatter or all_gather) and
// size class.
class Measurements {
 public:
  using BySize = std::array<std::optional<MeasuredChoice>, kSizeClasses>;

  void set(Collective collective, int size_class, MeasuredChoice measurement);
  void forget(Collective collective, int size_class);
  [[nodiscard]] const MeasuredChoice* find(Collective collective, int size_class) const;
  [[nodiscard]] int count() const;

  // Takes for each size what was found for it or for the nearest size. With `sums_go_around` (see the note)
  // large sums and small ones say nothing about each other. The choice for an all-reduce follows from the
  // other two.
  [[nodiscard]] Choices choices(bool sums_go_around) const;

  // Writes the measurements as text of a file. `key` names what they hold for; parse() returns nothing for
  // another key, another form, or names that it does not know.
  [[nodiscard]] std::string format(const std::string& key) const;
  static std::optional<Measurements> parse(const std::string& text, const std::string& key);

 private:
  [[nodiscard]] message_programs::AlgorithmChoice nearest(Collective collective, int size_class, int begin,
                                                          int end) const;

  std::map<Collective, BySize> by_operation_;
};

}  // namespace dear::backends
