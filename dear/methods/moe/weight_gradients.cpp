#include "dear/methods/moe/weight_gradients.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::methods::moe {
namespace {

class BestFit {
 public:
  BestFit(const InstructionGraph& graph, const WeightGradientOptions& options)
      : graph_(graph),
        options_(options),
        labels_(overlappable(graph)),
        last_(graph.size(), kNone),
        placed_(graph.size()) {
    for (std::size_t at = 0; at < labels_.size(); ++at)
      for (const InstructionId id : labels_[at].instructions) last_[id] = at;
  }

  Hiding run() {
    for (std::size_t at = 0; at < labels_.size(); ++at) {
      hiding_.under.push_back({labels_[at].all_to_all, {}});
      const double seconds = graph_[labels_[at].all_to_all].seconds;
      double left = seconds;
      while (left > 0) {
        const InstructionId id = nearest(at, left);
        if (id == graph_.size()) break;
        if (options_.leave_what_is_too_long && !hiding_.under.back().instructions.empty() &&
            graph_[id].seconds > 2 * left)
          break;
        place(id);
        left -= graph_[id].seconds;
      }
      if (options_.take_the_last_chance)
        for (const InstructionId id : labels_[at].instructions)
          if (!placed_[id] && last_[id] == at) left -= place_with_predecessors(id, labels_[at].instructions);
      hiding_.hidden_seconds += seconds - std::max(0.0, left);
    }
    return hiding_;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  // For one that may still go behind an all-to-all.
  [[nodiscard]] bool waits(InstructionId id, std::size_t at) const {
    return std::any_of(graph_.predecessors(id).begin(), graph_.predecessors(id).end(),
                       [&](InstructionId before) {
                         return last_[before] != kNone && last_[before] >= at && !placed_[before];
                       });
  }

  [[nodiscard]] InstructionId nearest(std::size_t at, double seconds) const {
    auto best = static_cast<InstructionId>(graph_.size());
    for (const InstructionId id : labels_[at].instructions)
      if (!placed_[id] && !waits(id, at) &&
          (best == graph_.size() ||
           std::abs(seconds - graph_[id].seconds) < std::abs(seconds - graph_[best].seconds)))
        best = id;
    return best;
  }

  void place(InstructionId id) {
    placed_[id] = true;
    hiding_.under.back().instructions.push_back(id);
  }

  double place_with_predecessors(InstructionId id, const std::vector<InstructionId>& among) {
    double seconds = 0;
    for (const InstructionId before : graph_.predecessors(id))
      if (!placed_[before] && std::find(among.begin(), among.end(), before) != among.end())
        seconds += place_with_predecessors(before, among);
    place(id);
    return seconds + graph_[id].seconds;
  }

  const InstructionGraph& graph_;
  const WeightGradientOptions& options_;
  std::vector<Overlappable> labels_;
  std::vector<std::size_t> last_;  // by instruction: the last all-to-all that it may run under
  std::vector<bool> placed_;
  Hiding hiding_;
};

}  // namespace

std::vector<Overlappable> overlappable(const InstructionGraph& graph) {
  std::vector<bool> excluded(graph.size());
  for (InstructionId id = 0; id < graph.size(); ++id) {
    const Instruction& instruction = graph[id];
    if (communicates(instruction.kind) || instruction.kind == Kind::update ||
        (instruction.kind == Kind::compute && graph.predecessors(id).empty()))
      excluded[id] = true;
    if (!reduces_dense(instruction.kind)) continue;
    const std::vector<bool> later = reached_from(graph, id);
    for (InstructionId other = 0; other < graph.size(); ++other)
      if (later[other]) excluded[other] = true;
  }
  std::vector<Overlappable> labels;
  for (const InstructionId all_to_all : graph.all_to_alls()) {
    const std::vector<bool> later = reached_from(graph, all_to_all);
    const std::vector<bool> earlier = leading_to(graph, all_to_all);
    labels.push_back({all_to_all, {}});
    for (const InstructionId id : graph.order())
      if (!excluded[id] && !later[id] && !earlier[id]) labels.back().instructions.push_back(id);
  }
  return labels;
}

Hiding hide_by_best_fit(const InstructionGraph& graph, const WeightGradientOptions& options) {
  return BestFit(graph, options).run();
}

// best[m]: the most that the all-to-alls so far hide under the instructions of the set m.
Hiding hide_by_search(const InstructionGraph& graph) {
  const std::vector<Overlappable> labels = overlappable(graph);
  std::vector<InstructionId> all;
  for (const Overlappable& label : labels)
    all.insert(all.end(), label.instructions.begin(), label.instructions.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.size() > kMostToSearch)
    throw ConfigError(fmt::format("{} instructions under all-to-alls are too many to search: give {} at most",
                                  all.size(), kMostToSearch));
  const std::size_t sets = std::size_t{1} << all.size();
  std::vector<double> seconds(sets), best(sets);
  for (std::size_t set = 1; set < sets; ++set)
    for (std::size_t i = 0; i < all.size(); ++i)
      if ((set >> i & 1) != 0) seconds[set] += graph[all[i]].seconds;
  std::vector<std::vector<std::size_t>> taken;  // by all-to-all, then set
  for (const Overlappable& label : labels) {
    std::size_t allowed = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (std::find(label.instructions.begin(), label.instructions.end(), all[i]) != label.instructions.end())
        allowed |= std::size_t{1} << i;
    std::vector<double> next = best;
    taken.emplace_back(sets);
    for (std::size_t set = 0; set < sets; ++set)
      for (std::size_t own = set & allowed; own != 0; own = (own - 1) & set & allowed) {
        const double hidden = best[set & ~own] + std::min(graph[label.all_to_all].seconds, seconds[own]);
        if (hidden > next[set]) {
          next[set] = hidden;
          taken.back()[set] = own;
        }
      }
    best = std::move(next);
  }
  Hiding hiding{.under = {}, .hidden_seconds = best.back()};
  std::size_t set = sets - 1;
  for (std::size_t at = labels.size(); at-- > 0;) {
    Hiding::Under under{labels[at].all_to_all, {}};
    for (std::size_t i = 0; i < all.size(); ++i)
      if ((taken[at][set] >> i & 1) != 0) under.instructions.push_back(all[i]);
    set &= ~taken[at][set];
    hiding.under.insert(hiding.under.begin(), std::move(under));
  }
  return hiding;
}

InstructionGraph hide(const InstructionGraph& graph, const Hiding& hiding) {
  std::vector<bool> moved(graph.size());
  for (const Hiding::Under& under : hiding.under)
    for (const InstructionId id : under.instructions) moved.at(id) = true;
  std::vector<InstructionId> wanted;
  for (const InstructionId id : graph.order()) {
    if (!moved[id]) wanted.push_back(id);
    for (const Hiding::Under& under : hiding.under)
      if (under.all_to_all == id)
        wanted.insert(wanted.end(), under.instructions.begin(), under.instructions.end());
  }
  return graph.reordered(wanted);
}

InstructionGraph schedule_weight_gradients(const InstructionGraph& graph,
                                           const WeightGradientOptions& options) {
  return hide(graph, hide_by_best_fit(graph, options));
}

}  // namespace dear::methods::moe
