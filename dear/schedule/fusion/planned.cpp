#include "dear/schedule/fusion/planned.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "dear/schedule/fusion/chunks.h"
#include "dear/schedule/fusion/eager_order.h"
#include "dear/schedule/fusion/layer_units.h"
#include "dear/schedule/fusion/planned_eager.h"

namespace dear {
namespace {

constexpr std::size_t kMostLabels = 64;  // of one border
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// ---- All-reduces: end[u] is the earliest end of those of units u and after; they go back to front.

fusion::Borders borders_for_all_reduces(const fusion::LayerUnits& units, const cost::CollectiveTimes& times) {
  const std::size_t count = units.count();
  std::vector<double> end(count + 1, std::numeric_limits<double>::infinity());
  std::vector<std::size_t> next(count + 1, count);
  end[count] = 0;
  for (std::size_t begin = count; begin-- > 0;) {
    for (std::size_t after = begin + 1; after <= count && units.together(begin, after - 1); ++after) {
      const double ends =
          std::max(end[after], units.ready[begin]) + times.all_reduce(units.bytes(begin, after));
      // Among equals, the larger bucket is taken.
      if (ends <= end[begin]) {
        end[begin] = ends;
        next[begin] = after;
      }
    }
  }
  fusion::Borders borders = {0};
  while (borders.back() < count) borders.push_back(next[borders.back()]);
  return borders;
}

// ---- Decoupled: the recursion of [Note: borders].

// The buckets of all units before a border, as far as the recursion needs to know them.
struct Label {
  double scatters = 0;     // sum of reduce-scatters
  double scattered = 0;    // end of the last, counted from the begin of backward
  double gathers = 0;      // sum of all-gathers
  double forward_end = 0;  // counted from the begin of the first all-gather
  std::size_t previous_border = kNone;
  std::size_t previous_label = kNone;

  [[nodiscard]] bool no_worse_than(const Label& other) const {
    return scatters <= other.scatters && scattered <= other.scattered && gathers <= other.gathers &&
           forward_end <= other.forward_end;
  }
};

class Decoupled {
 public:
  Decoupled(const fusion::LayerUnits& units, const cost::CollectiveTimes& times)
      : units_(units), times_(times), labels_(units.count() + 1) {
    labels_[0].push_back({.scattered = units.backward, .forward_end = units.forward_at[0]});
  }

  Label extended(const Label& label, std::size_t begin, std::size_t end) const {
    const std::int64_t bytes = units_.bytes(begin, end);
    return extended(label, begin, end, times_.reduce_scatter(bytes), times_.all_gather(bytes));
  }
  static double seconds(const Label& complete) { return complete.scattered + complete.forward_end; }
  const Label& nothing_yet() const { return labels_[0].front(); }

  fusion::Borders best() {
    const std::size_t count = units_.count();
    for (std::size_t begin = 0; begin < count; ++begin) {
      if (begin > 0) thin_out(begin);
      for (std::size_t end = begin + 1; end <= count && units_.together(begin, end - 1); ++end) {
        const std::int64_t bytes = units_.bytes(begin, end);
        const double scatter = times_.reduce_scatter(bytes);
        const double gather = times_.all_gather(bytes);
        for (std::size_t i = 0; i < labels_[begin].size(); ++i) {
          Label label = extended(labels_[begin][i], begin, end, scatter, gather);
          label.previous_border = begin;
          label.previous_label = i;
          add(end, label);
        }
      }
    }
    const auto best =
        std::min_element(labels_[count].begin(), labels_[count].end(),
                         [](const Label& one, const Label& other) { return seconds(one) < seconds(other); });
    fusion::Borders borders = {count};
    for (const Label* label = &*best; label->previous_border != kNone;
         label = &labels_[borders.back()][label->previous_label])
      borders.push_back(label->previous_border);
    std::reverse(borders.begin(), borders.end());
    return borders;
  }

 private:
  Label extended(const Label& label, std::size_t begin, std::size_t end, double scatter,
                 double gather) const {
    Label longer = label;
    longer.scatters += scatter;
    longer.scattered = std::max(label.scattered, units_.ready[begin] + longer.scatters);
    longer.gathers += gather;
    longer.forward_end = std::max(label.forward_end, longer.gathers) + units_.forward(begin, end);
    return longer;
  }

  // A lower bound of what `label` can become: all units that are left as one bucket, which is needed after
  // everything else.
  [[nodiscard]] double promise(const Label& label, std::size_t border) const {
    if (border == units_.count()) return seconds(label);
    const std::int64_t rest = units_.bytes(border, units_.count());
    const double scatter = times_.reduce_scatter(rest);
    const double gather = times_.all_gather(rest);
    return std::max(label.scattered, units_.ready.back() + label.scatters + scatter) +
           std::max(label.forward_end + units_.forward(border, units_.count()), label.gathers + gather);
  }

  void add(std::size_t border, const Label& label) {
    std::vector<Label>& there = labels_[border];
    for (const Label& other : there)
      if (other.no_worse_than(label)) return;
    std::erase_if(there, [&](const Label& other) { return label.no_worse_than(other); });
    there.push_back(label);
    if (there.size() > 2 * kMostLabels) thin_out(border);
  }

  void thin_out(std::size_t border) {
    std::vector<Label>& there = labels_[border];
    if (there.size() <= kMostLabels) return;
    std::nth_element(
        there.begin(), there.begin() + kMostLabels, there.end(),
        [&](const Label& one, const Label& other) { return promise(one, border) < promise(other, border); });
    there.resize(kMostLabels);
  }

  const fusion::LayerUnits& units_;
  const cost::CollectiveTimes& times_;
  std::vector<std::vector<Label>> labels_;  // by border
};

}  // namespace

Grouping group_planned(const Workload& workload, const cost::CollectiveTimes& times, Overlap overlap) {
  const fusion::LayerUnits units(workload);
  if (units.count() == 0) return units.grouping;
  const auto joined = [&](const fusion::Borders& borders) { return fusion::join(workload, units, borders); };
  switch (overlap) {
    case Overlap::all_reduce:
      return joined(borders_for_all_reduces(units, times));
    case Overlap::decoupled:
      return joined(Decoupled(units, times).best());
    case Overlap::eager:
      break;
  }
  return fusion::group_for_eager(workload, units, times,
                                 {borders_for_all_reduces(units, times), Decoupled(units, times).best()});
}

double recursive_iteration_seconds(const Workload& workload, const Grouping& grouping,
                                   const cost::CollectiveTimes& times, Overlap overlap) {
  if (overlap == Overlap::eager) {
    return fusion::eager_order(fusion::chunks_of(workload, grouping, times),
                               workload.forward_seconds() + workload.backward_seconds())
        .seconds;
  }
  const fusion::LayerUnits units(workload);
  fusion::Borders borders = {0};
  for (std::size_t unit = 1; unit < units.count(); ++unit) {
    const auto bucket = [&](std::size_t of) {
      return grouping.bucket_of(units.grouping.buckets()[of].tensors.front());
    };
    if (bucket(unit) != bucket(unit - 1)) borders.push_back(unit);
  }
  if (units.count() > 0) borders.push_back(units.count());
  if (overlap == Overlap::decoupled) {
    const Decoupled decoupled(units, times);
    Label label = decoupled.nothing_yet();
    if (units.count() == 0) label.forward_end = units.forward_end;
    for (std::size_t i = 0; i + 1 < borders.size(); ++i)
      label = decoupled.extended(label, borders[i], borders[i + 1]);
    return Decoupled::seconds(label);
  }
  double end = 0;
  for (std::size_t i = borders.size() - 1; i > 0; --i)
    end = std::max(end, units.ready[borders[i - 1]]) +
          times.all_reduce(units.bytes(borders[i - 1], borders[i]));
  return units.forward_end + std::max(units.backward, end);
}

double eager_floor_seconds(const Workload& workload, const cost::CollectiveTimes& times) {
  const Grouping layers = group(workload, PerLayer{});
  const double compute = workload.forward_seconds() + workload.backward_seconds();
  const std::vector<fusion::TimedChunk> alone = fusion::chunks_of(workload, layers, times);
  const std::int64_t all = workload.bytes();
  const auto per_byte = [all](const cost::CollectiveTimes::Seconds& seconds) {
    return (seconds(2 * all) - seconds(all)) / static_cast<double>(all);
  };
  std::vector<fusion::TimedChunk> chunks = alone;
  for (BucketId layer = 0; layer < chunks.size(); ++layer) {
    const auto bytes = static_cast<double>(layers.buckets()[layer].bytes);
    chunks[layer].scatter = bytes * per_byte(times.reduce_scatter);
    chunks[layer].gather = bytes * per_byte(times.all_gather);
  }
  double floor = compute;
  for (std::size_t layer = 0; layer < chunks.size(); ++layer) {
    const fusion::TimedChunk without = std::exchange(chunks[layer], alone[layer]);
    floor = std::max(floor, fusion::least_seconds(chunks, compute));
    chunks[layer] = without;
  }
  return floor;
}

}  // namespace dear
