#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dear/base/liveness/verdict.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::liveness {

// Decides which of the failures that are told is the cause. A cause may come later than its consequences, so
// a decision waits a moment for a better one. Starts no thread and reads no clock.
class Judge {
 public:
  // names[r] is "rank 2 (pid 123)".
  Judge(int epoch, std::vector<std::string> names) : epoch_(epoch), names_(std::move(names)) {}

  // `reporter` tells of a failure. Its end, from then on, is a consequence.
  void hear(int reporter, Word word, SteadyTime now);
  // The rank ended in good order: no failure as long as nobody waits for it.
  void note_left(int rank) { left_.insert(rank); }
  // Where the rank is that came too late.
  void note_place(int rank, const std::string& place) { places_[rank] = place; }

  // The rank whose place is to be found out.
  [[nodiscard]] std::optional<int> asks() const;
  // When to decide; nothing where nothing has failed.
  [[nodiscard]] std::optional<SteadyTime> due() const;
  [[nodiscard]] Verdict decide() const;

 private:
  [[nodiscard]] std::string name(int rank) const;
  [[nodiscard]] Word first() const;

  int epoch_;
  std::vector<std::string> names_;
  std::optional<Word> best_;
  SteadyTime began_{};
  std::set<int> reporters_, left_;
  std::map<int, std::string> places_;
};

}  // namespace dear::liveness
