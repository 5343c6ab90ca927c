#include "dear/schedule/fusion/planned_eager.h"

#include <algorithm>
#include <compare>
#include <optional>
#include <utility>

#include "dear/base/vocabulary/units.h"
#include "dear/schedule/fusion/chunks.h"
#include "dear/schedule/fusion/eager_order.h"

namespace dear::fusion {
namespace {

constexpr double kCutGain = 1e-3;                 // a chunk more is a collective more, which no model counts
constexpr std::size_t kImproved = 6;              // beginnings
constexpr std::size_t kChunksLooked = 1'200'000;  // at while borders move, in all

struct Score {
  double iteration = 0, network = 0;
  friend auto operator<=>(const Score&, const Score&) = default;
  [[nodiscard]] bool better_than(const Score& other) const {
    if (iteration < other.iteration * (1 - kLeastGain)) return true;
    return iteration <= other.iteration * (1 + kLeastGain) && network < other.network * (1 - kLeastGain);
  }
};

class Search {
 public:
  Search(const Workload& workload, const LayerUnits& units, const cost::CollectiveTimes& times)
      : workload_(workload), units_(units), times_(times) {}

  Borders best(const std::vector<Borders>& beginnings) {
    std::vector<std::pair<Score, Borders>> found;
    for (const Borders& borders : beginnings) found.emplace_back(score(borders), borders);
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& one, const auto& other) { return one.first < other.first; });
    found.resize(std::min(found.size(), kImproved));
    for (std::size_t i = 0; i < found.size(); ++i) {
      budget_ = kChunksLooked / kImproved;
      improve(found[i].second, found[i].first);
    }
    return std::min_element(found.begin(), found.end(),
                            [](const auto& one, const auto& other) { return one.first < other.first; })
        ->second;
  }

  // The borders of buckets that end before they hold so many bytes.
  [[nodiscard]] Borders by_size(std::int64_t most) const {
    Borders borders = {0};
    for (std::size_t unit = 1; unit < units_.count(); ++unit)
      if (!units_.together(borders.back(), unit) || units_.bytes(borders.back(), unit + 1) > most)
        borders.push_back(unit);
    borders.push_back(units_.count());
    return borders;
  }

 private:
  [[nodiscard]] Score score(const Borders& borders) const {
    std::vector<TimedChunk> chunks;
    double network = 0;
    const double bytes_of_all = static_cast<double>(units_.bytes_before.back());
    for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
      const std::int64_t bytes = units_.bytes(borders[i], borders[i + 1]);
      chunks.push_back({.ready = units_.ready[borders[i]],
                        .scatter = times_.reduce_scatter(bytes),
                        .update = workload_.update_seconds * static_cast<double>(bytes) / bytes_of_all /
                                  std::max(times_.ranks, 1),
                        .gather = times_.all_gather(bytes),
                        .forward_left = units_.forward_end - units_.forward_at[borders[i]]});
      network += chunks.back().scatter + chunks.back().gather;
    }
    return {quick_eager_seconds(chunks, units_.backward + units_.forward_end), network};
  }

  bool take_if_better(Borders& borders, Score& known, Borders changed) {
    budget_ -= std::min(budget_, changed.size());
    const Score changed_score = score(changed);
    if (!changed_score.better_than(known)) return false;
    borders = std::move(changed);
    known = changed_score;
    return true;
  }

  void improve(Borders& borders, Score& known) {
    for (bool changed = true; changed && budget_ > 0;) {
      changed = false;
      for (std::size_t unit = 1; unit < units_.count() && budget_ > 0; ++unit) {
        const auto at = std::lower_bound(borders.begin(), borders.end(), unit);
        const auto index = at - borders.begin();
        Borders other = borders;
        if (*at != unit) {
          other.insert(other.begin() + index, unit);
          changed |= take_if_better(borders, known, std::move(other));
          continue;
        }
        if (units_.together(borders[static_cast<std::size_t>(index) - 1], unit)) {
          other.erase(other.begin() + index);
          if (take_if_better(borders, known, std::move(other))) {
            changed = true;
            continue;
          }
        }
        for (const int step : {-16, -8, -4, -2, -1, 1, 2, 4, 8, 16})
          changed |= moved(borders, known, unit, step);
      }
    }
  }

  // Moves the border at `unit`, if it is still there, by so many units, unless another border is in between.
  bool moved(Borders& borders, Score& known, std::size_t unit, int step) {
    const auto at = std::lower_bound(borders.begin(), borders.end(), unit);
    if (*at != unit || budget_ == 0) return false;
    const auto to = static_cast<std::ptrdiff_t>(unit) + step;
    if (to <= static_cast<std::ptrdiff_t>(*(at - 1)) || to >= static_cast<std::ptrdiff_t>(*(at + 1)))
      return false;
    // The bucket that grows must not mix dtypes.
    if (step > 0 ? !units_.together(*(at - 1), static_cast<std::size_t>(to) - 1)
                 : !units_.together(static_cast<std::size_t>(to), *(at + 1) - 1))
      return false;
    Borders other = borders;
    other[static_cast<std::size_t>(at - borders.begin())] = static_cast<std::size_t>(to);
    return take_if_better(borders, known, std::move(other));
  }

  const Workload& workload_;
  const LayerUnits& units_;
  const cost::CollectiveTimes& times_;
  std::size_t budget_ = 0;
};

Grouping cut(const Workload& workload, const Grouping& grouping, std::int64_t most) {
  std::vector<Bucket> buckets = grouping.buckets();
  for (Bucket& bucket : buckets)
    bucket.chunk_bytes =
        bucket.bytes > most ? std::max(most, (bucket.bytes + kMostChunks - 1) / kMostChunks) : 0;
  return {workload, std::move(buckets)};
}

}  // namespace

Grouping group_for_eager(const Workload& workload, const LayerUnits& units,
                         const cost::CollectiveTimes& times, const std::vector<Borders>& seeds) {
  Search search(workload, units, times);
  std::vector<Borders> beginnings = seeds;
  for (std::int64_t bytes = kMiB / 4; bytes <= 256 * kMiB; bytes *= 2)
    beginnings.push_back(search.by_size(bytes));
  beginnings.push_back(search.by_size(0));
  Grouping best = join(workload, units, search.best(beginnings));

  const double compute = units.backward + units.forward_end;
  const auto seconds = [&](const Grouping& grouping) {
    return eager_order(chunks_of(workload, grouping, times), compute).seconds;
  };
  const Grouping uncut = best;
  double known = seconds(uncut);
  for (std::int64_t bytes = 64 * kMiB; bytes >= kMiB; bytes /= 2) {
    Grouping chunks = cut(workload, uncut, bytes);
    const double of_chunks = seconds(chunks);
    if (of_chunks >= known * (1 - kCutGain)) continue;
    known = of_chunks;
    best = std::move(chunks);
  }
  return best;
}

}  // namespace dear::fusion
