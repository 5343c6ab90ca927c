#include "dear/comm/buckets/whole_tensors.h"

#include <algorithm>
#include <optional>

namespace dear::buckets {
namespace {

std::int64_t rounded_up(std::int64_t elements, std::int64_t line) {
  return (elements + line - 1) / line * line;
}

// The whole tensors of one shard.
struct Share {
  std::vector<std::size_t> tensors;
  std::int64_t elements = 0;
  double cost = 0;
};

class Placing {
 public:
  Placing(const std::vector<Placeable>& tensors, int ranks, std::int64_t line,
          const std::vector<double>& load)
      : tensors_(tensors), ranks_(ranks), line_(line), load_(load) {
    for (std::size_t i = 0; i < tensors.size(); ++i) (tensors[i].cost > 0 ? whole_ : cut_).push_back(i);
    std::stable_sort(whole_.begin(), whole_.end(),
                     [&](std::size_t a, std::size_t b) { return size_of(a) > size_of(b); });
    std::stable_sort(cut_.begin(), cut_.end(),
                     [&](std::size_t a, std::size_t b) { return size_of(a) > size_of(b); });
  }

  [[nodiscard]] std::int64_t size_of(std::size_t tensor) const {
    return rounded_up(tensors_[tensor].elements, line_);
  }
  // Shards of fewer elements cannot hold everything.
  [[nodiscard]] std::int64_t least_shard() const {
    std::int64_t all = 0, longest = line_;
    for (std::size_t i = 0; i < tensors_.size(); ++i) all += size_of(i);
    for (const std::size_t i : whole_) longest = std::max(longest, size_of(i));
    return std::max(longest, rounded_up((all + ranks_ - 1) / ranks_, line_));
  }

  // Nothing where shards of so many elements do not suffice.
  [[nodiscard]] std::optional<Placement> place(std::int64_t shard) const {
    // Tensors that may be cut and are longer than most gaps lie at the end, or nowhere in particular.
    const auto is_long = [&](std::size_t tensor) { return size_of(tensor) > shard / 2; };
    const auto first_short = std::find_if_not(cut_.begin(), cut_.end(), is_long);
    for (const bool by_cost : {true, false}) {
      for (const auto end_of_long : {cut_.begin(), first_short}) {
        const std::vector<std::size_t> at_end(cut_.begin(), end_of_long), in_gaps(end_of_long, cut_.end());
        if (auto placement = place(shard, at_end, in_gaps, by_cost)) return placement;
      }
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] std::optional<Placement> place(std::int64_t shard, const std::vector<std::size_t>& at_end,
                                               const std::vector<std::size_t>& in_gaps, bool by_cost) const {
    Placement placement{.elements = shard * ranks_, .offsets = std::vector<std::int64_t>(tensors_.size())};
    std::int64_t end = placement.elements;
    for (const std::size_t tensor : at_end) placement.offsets[tensor] = end -= size_of(tensor);
    if (end < 0) return std::nullopt;
    const std::optional<std::vector<Share>> shares = share_out(shard, end, by_cost);
    if (!shares || !fill(*shares, shard, end, in_gaps, placement)) return std::nullopt;
    return placement;
  }

  // Whole tensors, by rank, in the elements before `end`.
  [[nodiscard]] std::optional<std::vector<Share>> share_out(std::int64_t shard, std::int64_t end,
                                                            bool by_cost) const {
    std::vector<Share> shares(static_cast<std::size_t>(ranks_));
    for (const std::size_t tensor : whole_) {
      std::optional<std::size_t> best;
      for (std::size_t rank = 0; rank < shares.size(); ++rank) {
        const std::int64_t room = std::min(shard, end - static_cast<std::int64_t>(rank) * shard);
        if (shares[rank].elements + size_of(tensor) > room) continue;
        // The least cost; or the least room, where that does not come out.
        if (!best || (by_cost ? load_[rank] + shares[rank].cost < load_[*best] + shares[*best].cost
                              : shares[rank].elements > shares[*best].elements))
          best = rank;
      }
      if (!best) return std::nullopt;
      shares[*best].tensors.push_back(tensor);
      shares[*best].elements += size_of(tensor);
      shares[*best].cost += tensors_[tensor].cost;
    }
    return shares;
  }

  // Places the shares, and in the gaps what may be cut. False where it does not fit before `end`.
  [[nodiscard]] bool fill(const std::vector<Share>& shares, std::int64_t shard, std::int64_t end,
                          std::vector<std::size_t> in_gaps, Placement& placement) const {
    const auto leaves_room = [&](std::int64_t until, std::size_t after) {
      for (std::size_t rank = after; rank < shares.size(); ++rank) {
        const std::int64_t begin = static_cast<std::int64_t>(rank) * shard;
        if (until <= begin) break;
        const std::int64_t of_shard = std::min(begin + shard, std::max(begin, end));
        if (shares[rank].elements > 0 && std::min(until, begin + shard) + shares[rank].elements > of_shard)
          return false;
      }
      return until <= end;
    };
    std::int64_t next = 0;
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      const std::int64_t begin = static_cast<std::int64_t>(rank) * shard;
      next = std::max(next, begin);
      for (const std::size_t tensor : shares[rank].tensors) {
        placement.offsets[tensor] = next;
        next += size_of(tensor);
      }
      for (auto tensor = in_gaps.begin(); tensor != in_gaps.end() && next < begin + shard;) {
        if (!leaves_room(next + size_of(*tensor), rank + 1)) {
          ++tensor;
          continue;
        }
        placement.offsets[*tensor] = next;
        next += size_of(*tensor);
        tensor = in_gaps.erase(tensor);
      }
    }
    return in_gaps.empty();
  }

  const std::vector<Placeable>& tensors_;
  int ranks_;
  std::int64_t line_;
  const std::vector<double>& load_;
  std::vector<std::size_t> whole_, cut_;  // the longest first
};

}  // namespace

Placement place_whole(const std::vector<Placeable>& tensors, int ranks, std::int64_t line,
                      std::vector<double>& load) {
  load.resize(static_cast<std::size_t>(ranks));
  const Placing placing(tensors, ranks, line, load);
  // Longer by a hundredth each time, and at last long enough for everything.
  for (std::int64_t shard = placing.least_shard();; shard += std::max(line, rounded_up(shard / 100, line))) {
    std::optional<Placement> placement = placing.place(shard);
    if (!placement) continue;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].cost > 0)
        load[static_cast<std::size_t>(placement->offsets[i] / shard)] += tensors[i].cost;
    return *std::move(placement);
  }
}

CostOfTensors::CostOfTensors(const std::vector<double>& by_parameter, const std::vector<std::size_t>& order) {
  for (const std::size_t parameter : order)
    cost_of.push_back(by_parameter.empty() ? 0 : by_parameter[parameter]);
}

bool CostOfTensors::any_whole(const Bucket& bucket) const {
  return std::any_of(bucket.tensors.begin(), bucket.tensors.end(),
                     [&](TensorId tensor) { return cost_of[tensor] > 0; });
}

BucketLayout lay_out_whole(const Bucket& bucket, const Workload& workload,
                           const std::vector<std::uint32_t>& group_of, int ranks,
                           const std::vector<double>& cost_of, std::vector<double>& load) {
  std::vector<Placeable> tensors;
  for (const TensorId id : bucket.tensors)
    tensors.push_back({.elements = workload.tensors.at(id).elements, .cost = cost_of.at(id)});
  const Placement placement = place_whole(tensors, ranks, unit_of(bucket.dtype, 1), load);
  BucketLayout layout{.dtype = bucket.dtype, .elements = placement.elements, .placements = {}, .runs = {}};
  for (std::size_t i = 0; i < tensors.size(); ++i)
    layout.placements.push_back({bucket.tensors[i], placement.offsets[i], tensors[i].elements});
  std::sort(layout.placements.begin(), layout.placements.end(),
            [](const TensorPlacement& a, const TensorPlacement& b) { return a.offset < b.offset; });
  for (const TensorPlacement& tensor : layout.placements) {
    const std::uint32_t group = group_of.at(tensor.tensor);
    if (!layout.runs.empty() && layout.runs.back().parameter_group == group) continue;
    const std::int64_t begin = layout.runs.empty() ? 0 : tensor.offset;
    if (!layout.runs.empty()) layout.runs.back().range.end = begin;
    layout.runs.push_back({group, {begin, begin}});
  }
  layout.runs.back().range.end = layout.elements;
  return layout;
}

}  // namespace dear::buckets
