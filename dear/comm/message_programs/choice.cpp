#include "dear/comm/message_programs/choice.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/algorithm/algorithms.h"
#include "dear/platform/cost/program_time.h"
#include "dear/platform/cost/ring.h"

namespace dear::message_programs {
namespace {

// Beyond it the copy that a reduce-scatter by most algorithms works on costs more than rounds saved.
constexpr std::int64_t kMostCopied = kMiB;
// Above this size no memory for all contributions in full is taken.
constexpr std::int64_t kMostGathered = kMiB;

double algorithm_seconds(std::string_view name, Collective collective, const CollectiveCall& call,
                         const Link& link) {
  const algorithm::Algorithm& one = algorithm::find_algorithm(name);
  return cost::program_seconds(make_program(one, collective, {.ranks = call.ranks, .blocks = call.ranks}),
                               link, call.bytes);
}

void add_choices(Collective collective, std::vector<AlgorithmChoice>& choices) {
  for (const algorithm::Algorithm& one : algorithm::algorithms()) {
    if (has(one, collective)) {
      choices.push_back({.algorithm = std::string(one.name)});
    }
  }
}

void add_sums(const CollectiveCall& call, std::vector<AlgorithmChoice>& choices) {
  const std::vector<std::string> gathers =
      call.collective == Collective::all_reduce
          ? std::vector<std::string>{"ring", "pairwise", "halving-doubling", "bruck"}
          : std::vector<std::string>{""};
  for (const std::string& gather : gathers) {
    choices.push_back({.algorithm = "direct", .then = gather});
  }
  if (call.bytes * call.ranks <= kMostGathered) {
    choices.push_back({.algorithm = "gather"});
  }
}

}  // namespace

std::vector<AlgorithmChoice> algorithm_choices(const CollectiveCall& call) {
  std::vector<AlgorithmChoice> all;
  switch (call.collective) {
    case Collective::barrier:
      return {{.algorithm = "bruck"}};
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return {{.algorithm = "pairwise"}};
    case Collective::all_gather:
      add_choices(Collective::all_gather, all);
      return all;
    case Collective::broadcast:
      add_choices(Collective::broadcast, all);
      return all;
    case Collective::reduce_scatter:
      add_sums(call, all);
      if (!call.exact && call.bytes <= kMostCopied) {
        add_choices(Collective::reduce_scatter, all);
      }
      return all;
    case Collective::all_reduce:
      add_sums(call, all);
      if (!call.exact) {
        add_choices(Collective::all_reduce, all);
      }
      return all;
    case Collective::reduce:
      add_sums(call, all);
      if (!call.exact) add_choices(Collective::reduce, all);
      return all;
  }
  return all;
}

double modelled_seconds(const CollectiveCall& call, const AlgorithmChoice& choice, const Link& link) {
  CollectiveCall all_contributions = call;
  all_contributions.bytes = call.bytes * call.ranks;
  switch (call.collective) {
    case Collective::barrier:
      return algorithm_seconds(choice.algorithm, Collective::all_gather, call, link);
    case Collective::all_to_all:
    case Collective::all_to_all_v:  // as if all chunks were full
      return cost::pairwise_all_to_all_seconds(link, call.ranks, call.bytes);
    case Collective::all_gather:
      return algorithm_seconds(choice.algorithm, Collective::all_gather, call, link);
    case Collective::broadcast: {
      // Segments follow each other down the line, and down the trees, where blocks alone would not.
      const double pipeline = std::max(0, call.ranks - 2) * link.beta_seconds_per_byte *
                              static_cast<double>(std::min(call.bytes, choice.segment_bytes));
      if (choice.algorithm == "ring") {
        return cost::pipelined_broadcast_seconds(link, call.ranks, call.bytes) + pipeline;
      }
      return algorithm_seconds(choice.algorithm, Collective::broadcast, call, link);
    }
    case Collective::reduce_scatter:
    case Collective::all_reduce:
    case Collective::reduce:
      break;
  }
  if (choice.algorithm == "gather") {
    return algorithm_seconds("bruck", Collective::all_gather, all_contributions, link);
  }
  if (choice.algorithm == "direct") {
    const double scatter = cost::ring_reduce_scatter_seconds(link, call.ranks, call.bytes);
    if (call.collective == Collective::reduce_scatter) return scatter;
    return scatter + (call.collective == Collective::reduce
                          ? cost::ring_all_gather_seconds(link, call.ranks, call.bytes)  // to the root alone
                          : algorithm_seconds(choice.then, Collective::all_gather, call, link));
  }
  if (call.collective == Collective::reduce) {
    CollectiveCall backwards = call;
    backwards.collective = Collective::broadcast;
    return modelled_seconds(backwards, choice, link);
  }
  return algorithm_seconds(choice.algorithm, call.collective, call, link);
}

AlgorithmChoice choose_by_model(const CollectiveCall& call, const Link& link) {
  const std::vector<AlgorithmChoice> all = algorithm_choices(call);
  if (all.size() == 1) {
    return all.front();
  }
  std::vector<double> seconds;
  for (const AlgorithmChoice& choice : all) {
    seconds.push_back(modelled_seconds(call, choice, link));
  }
  const double enough = *std::min_element(seconds.begin(), seconds.end()) * 1.05;
  const auto first = std::find_if(seconds.begin(), seconds.end(), [&](double one) { return one <= enough; });
  return all[static_cast<std::size_t>(first - seconds.begin())];
}

}  // namespace dear::message_programs
