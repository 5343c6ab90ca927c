#include "dear/comm/mpi/ranking.h"

#include <algorithm>

namespace dear::backends {
namespace {

constexpr double kClearly = 0.95;
constexpr double kHopeless = 1.5;
constexpr double kQuarterSlower = 1.25;
constexpr double kQuarterFaster = 0.75;

}  // namespace

double median(Looks looks) {
  std::sort(looks.begin(), looks.end());
  return looks[(looks.size() - 1) / 2];
}

double usual_seconds(Looks looks) {
  std::sort(looks.begin(), looks.end());
  return looks[3 * (looks.size() - 1) / 4];
}

bool clearly_faster(const Looks& one, const Looks& other) {
  const std::size_t rounds = std::min(one.size(), other.size());
  std::size_t won = 0;
  for (std::size_t i = 0; i < rounds; ++i) {
    won += one[i] < other[i] ? 1 : 0;
  }
  const auto first = [rounds](const Looks& looks) {
    return usual_seconds(Looks(looks.begin(), looks.begin() + static_cast<std::ptrdiff_t>(rounds)));
  };
  return rounds > 0 && 4 * won >= 3 * rounds && first(one) < kClearly * first(other);
}

bool is_hopeless(const Looks& looks, const Looks& fastest) {
  return looks.size() > 1 &&
         *std::min_element(looks.begin(), looks.end()) > kHopeless * usual_seconds(fastest);
}

Ranking rank_choices(const std::vector<Looks>& choices) {
  Ranking ranking;
  for (std::size_t i = 1; i < choices.size(); ++i) {
    if (clearly_faster(choices[i], choices[ranking.best])) {
      ranking.best = i;
    }
  }
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const bool is_next = !ranking.second || median(choices[i]) < median(choices[*ranking.second]);
    if (i != ranking.best && is_next) {
      ranking.second = i;
    }
  }
  return ranking;
}

Standing standing(double remembered_seconds, const Looks& looks, const Looks& second) {
  if (median(looks) > kQuarterSlower * remembered_seconds) {
    return Standing::slower;
  }
  if (clearly_faster(second, looks)) {
    return Standing::overtaken;
  }
  return usual_seconds(looks) < kQuarterFaster * remembered_seconds ? Standing::faster : Standing::holds;
}

}  // namespace dear::backends
