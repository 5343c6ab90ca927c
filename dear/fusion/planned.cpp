#include "dear/fusion/planned.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace dear {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostLabels = 64;  // of one border
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// The smallest buckets there are, in forward order, and the time around them.
struct Units {
  explicit Units(const Workload& workload) : grouping(group(workload, PerLayer{})) {
    const std::size_t count = grouping.size();
    std::vector<LayerId> first_layer(count, static_cast<LayerId>(workload.layers.size()));
    for (LayerId layer = static_cast<LayerId>(workload.layers.size()); layer-- > 0;)
      for (const TensorId tensor : workload.layers[layer].tensors)
        first_layer[grouping.bucket_of(tensor)] = layer;
    std::vector<double> forward_before(workload.layers.size() + 1);
    std::vector<double> backward_before(workload.layers.size() + 1);
    for (std::size_t layer = 0; layer < workload.layers.size(); ++layer) {
      forward_before[layer + 1] = forward_before[layer] + workload.layers[layer].forward_seconds;
      backward_before[layer + 1] = backward_before[layer] + workload.layers[layer].backward_seconds;
    }
    backward = backward_before.back();
    forward_end = forward_before.back();
    bytes_before.push_back(0);
    for (std::size_t unit = 0; unit < count; ++unit) {
      bytes_before.push_back(bytes_before.back() + grouping.buckets()[unit].bytes);
      ready.push_back(backward - backward_before[first_layer[unit]]);
      forward_at.push_back(forward_before[first_layer[unit]]);
    }
    forward_at.push_back(forward_end);
  }

  [[nodiscard]] std::size_t count() const { return grouping.size(); }
  // Units [begin, end) as one bucket.
  [[nodiscard]] std::int64_t bytes(std::size_t begin, std::size_t end) const {
    return bytes_before[end] - bytes_before[begin];
  }
  [[nodiscard]] double forward(std::size_t begin, std::size_t end) const {
    return forward_at[end] - forward_at[begin];
  }
  [[nodiscard]] bool together(std::size_t begin, std::size_t next) const {
    return grouping.buckets()[begin].dtype == grouping.buckets()[next].dtype;
  }

  Grouping grouping;
  double backward = 0;
  double forward_end = 0;
  std::vector<std::int64_t> bytes_before;
  std::vector<double> ready;       // when backward, begun at 0, has left the unit's gradients
  std::vector<double> forward_at;  // when forward, begun at 0 and never waiting, reaches the unit
};

// Units [borders[i], borders[i + 1]) are a bucket.
using Borders = std::vector<std::size_t>;

Grouping join(const Workload& workload, const Units& units, const Borders& borders) {
  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    Bucket& bucket = buckets.emplace_back();
    for (std::size_t unit = borders[i]; unit < borders[i + 1]; ++unit) {
      const std::vector<TensorId>& tensors = units.grouping.buckets()[unit].tensors;
      bucket.tensors.insert(bucket.tensors.end(), tensors.begin(), tensors.end());
    }
  }
  return {workload, std::move(buckets)};
}

// ---- All-reduces: end[u] is the earliest end of those of units u and after; they go back to front.

Borders borders_for_all_reduces(const Units& units, const cost::CollectiveTimes& times) {
  const std::size_t count = units.count();
  std::vector<double> end(count + 1, kInfinity);
  std::vector<std::size_t> next(count + 1, count);
  end[count] = 0;
  for (std::size_t begin = count; begin-- > 0;) {
    for (std::size_t after = begin + 1; after <= count && units.together(begin, after - 1); ++after) {
      const double ends =
          std::max(end[after], units.ready[begin]) + times.all_reduce(units.bytes(begin, after));
      // Of equals the larger bucket.
      if (ends <= end[begin]) {
        end[begin] = ends;
        next[begin] = after;
      }
    }
  }
  Borders borders = {0};
  while (borders.back() < count) borders.push_back(next[borders.back()]);
  return borders;
}

// ---- Decoupled.

// Buckets of all units before a border.
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
  Decoupled(const Units& units, const cost::CollectiveTimes& times)
      : units_(units), times_(times), labels_(units.count() + 1) {
    labels_[0].push_back({.scattered = units.backward, .forward_end = units.forward_at[0]});
  }

  Label extended(const Label& label, std::size_t begin, std::size_t end) const {
    const std::int64_t bytes = units_.bytes(begin, end);
    return extended(label, begin, end, times_.reduce_scatter(bytes), times_.all_gather(bytes));
  }
  static double seconds(const Label& complete) { return complete.scattered + complete.forward_end; }
  const Label& nothing_yet() const { return labels_[0].front(); }

  Borders best() {
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
    Borders borders = {count};
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

  // What it can become at best: all that is left as one bucket, needed after everything else.
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

  const Units& units_;
  const cost::CollectiveTimes& times_;
  std::vector<std::vector<Label>> labels_;  // by border
};

}  // namespace

Grouping group_planned(const Workload& workload, const cost::CollectiveTimes& times, Overlap overlap) {
  const Units units(workload);
  if (units.count() == 0) return units.grouping;
  return join(workload, units,
              overlap == Overlap::all_reduce ? borders_for_all_reduces(units, times)
                                             : Decoupled(units, times).best());
}

double recursive_iteration_seconds(const Workload& workload, const Grouping& grouping,
                                   const cost::CollectiveTimes& times, Overlap overlap) {
  const Units units(workload);
  Borders borders = {0};
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

}  // namespace dear
