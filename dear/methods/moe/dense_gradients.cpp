#include "dear/methods/moe/dense_gradients.h"

#include <algorithm>
#include <limits>

#include "dear/methods/moe/two_lanes.h"

namespace dear::methods::moe {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();

// The network between the all-to-all before and the next one.
struct Gap {
  double begin = 0;  // what is filled from the front moves it
  double end = kEndless;
  std::vector<InstructionId> filled{};
};

bool is_dense(Kind kind) { return communicates(kind) && kind != Kind::all_to_all; }

InstructionGraph with_gathers_in_next_forward(const InstructionGraph& graph) {
  std::vector<Instruction> instructions = graph.instructions();
  std::vector<InstructionId> wanted;
  for (InstructionId id = 0; id < instructions.size(); ++id) {
    Instruction& instruction = instructions[id];
    if (instruction.kind == Kind::all_gather) {
      instruction.after_previous.insert(instruction.after_previous.end(), graph.predecessors(id).begin(),
                                        graph.predecessors(id).end());
      instruction.after.clear();
      instruction.reads.clear();
      instruction.cuts.clear();
      wanted.push_back(id);
      continue;
    }
    std::vector<InstructionId>& previous = instruction.after_previous;
    const auto moved = std::stable_partition(previous.begin(), previous.end(), [&](InstructionId before) {
      return graph[before].kind != Kind::all_gather;
    });
    instruction.after.insert(instruction.after.end(), moved, previous.end());
    previous.erase(moved, previous.end());
  }
  for (const InstructionId id : graph.order())
    if (graph[id].kind != Kind::all_gather) wanted.push_back(id);
  return {graph.values(), std::move(instructions), std::move(wanted)};
}

class Filler {
 public:
  explicit Filler(const InstructionGraph& graph) : graph_(graph), begin_(graph.size()), end_(graph.size()) {
    std::vector<Instruction> instructions = graph.instructions();
    for (Instruction& instruction : instructions)
      if (is_dense(instruction.kind)) instruction.seconds = 0;
    const Times times = play({graph.values(), std::move(instructions), graph.order()});
    for (const conductor::StepSpan& span : times.spans) {
      begin_[graph.order()[span.which.step]] = span.begin_seconds;
      end_[graph.order()[span.which.step]] = span.end_seconds;
    }
    gaps_.emplace_back();
    for (const InstructionId id : graph.all_to_alls()) {
      gaps_.back().end = begin_[id];
      gaps_.push_back({.begin = end_[id]});
    }
  }

  InstructionGraph run() {
    fill_with_reductions();
    place_gathers();
    std::vector<InstructionId> wanted;
    std::size_t gap = 0;
    for (const InstructionId id : graph_.order()) {
      if (graph_[id].kind == Kind::all_to_all) append(gaps_[gap++].filled, wanted);
      append(before_[id], wanted);
      if (!is_dense(graph_[id].kind)) wanted.push_back(id);
      if (gap + 1 == gaps_.size()) append(gaps_[gap].filled, wanted);
    }
    return graph_.reordered(wanted);
  }

 private:
  static void append(std::vector<InstructionId>& from, std::vector<InstructionId>& to) {
    to.insert(to.end(), from.begin(), from.end());
    from.clear();
  }

  // How much of a gap would be left behind it; below 0 where it does not fit.
  [[nodiscard]] double left_of(const Gap& gap, InstructionId id, double ready, double deadline) const {
    return std::min(gap.end, deadline) - (std::max(gap.begin, ready) + graph_[id].seconds);
  }
  void put(Gap& gap, InstructionId id, double ready) {
    gap.begin = std::max(gap.begin, ready) + graph_[id].seconds;
    gap.filled.push_back(id);
  }
  [[nodiscard]] double ready(InstructionId id) const {
    double ready = 0;
    for (const InstructionId before : graph_.predecessors(id)) ready = std::max(ready, end_[before]);
    return ready;
  }

  void fill_with_reductions() {
    std::vector<InstructionId> open;
    for (const InstructionId id : graph_.order())
      if (reduces_dense(graph_[id].kind)) open.push_back(id);
    for (Gap& gap : gaps_) {
      if (&gap == &gaps_.back()) break;
      for (;;) {
        auto best = open.end();
        double least = kEndless;
        for (auto it = open.begin(); it != open.end(); ++it) {
          const double left = left_of(gap, *it, ready(*it), kEndless);
          if (left >= 0 && left < least) {
            least = left;
            best = it;
          }
        }
        if (best == open.end()) break;
        put(gap, *best, ready(*best));
        open.erase(best);
      }
    }
    append(open, gaps_.back().filled);
  }

  void place_gathers() {
    before_.resize(graph_.size());
    struct Needed {
      double at;
      InstructionId gather, reader;
    };
    std::vector<Needed> needed;
    for (const InstructionId gather : graph_.order()) {
      if (graph_[gather].kind != Kind::all_gather) continue;
      Needed need{kEndless, gather, graph_.order().back()};
      for (const InstructionId id : graph_.order()) {
        const std::vector<InstructionId>& waits_for = graph_.predecessors(id);
        if (!std::binary_search(waits_for.begin(), waits_for.end(), gather) || begin_[id] >= need.at)
          continue;
        need.at = begin_[id];
        need.reader = id;
      }
      needed.push_back(need);
    }
    std::stable_sort(needed.begin(), needed.end(),
                     [](const Needed& a, const Needed& b) { return a.at < b.at; });
    for (const Needed& need : needed) {
      Gap* best = nullptr;
      double least = kEndless;
      for (Gap& gap : gaps_) {
        const double left = left_of(gap, need.gather, 0, need.at);
        if (left < 0 || left >= least) continue;
        least = left;
        best = &gap;
      }
      if (best != nullptr)
        put(*best, need.gather, 0);
      else
        before_[need.reader].push_back(need.gather);
    }
  }

  const InstructionGraph& graph_;
  std::vector<double> begin_, end_;  // by instruction, with no time for collectives of dense tensors
  std::vector<Gap> gaps_;            // one more than all-to-alls
  std::vector<std::vector<InstructionId>> before_;  // by instruction: what is issued right before it
};

}  // namespace

InstructionGraph place_dense(const InstructionGraph& graph) {
  const InstructionGraph moved = with_gathers_in_next_forward(graph);
  return Filler(moved).run();
}

}  // namespace dear::methods::moe
