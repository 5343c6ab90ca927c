#include "dear/programs/choice.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/algorithm/algorithms.h"
#include "dear/base/error.h"
#include "dear/base/units.h"
#include "dear/cost/program_time.h"
#include "dear/cost/ring.h"

namespace dear::programs {
namespace {

using algorithm::Collective;

// Beyond it the copy that a reduce-scatter by most algorithms works on costs more than rounds saved.
constexpr std::int64_t kMostCopied = kMiB;
// Beyond it memory for all contributions in full is not taken.
constexpr std::int64_t kMostGathered = kMiB;

double algorithm_seconds(std::string_view name, Collective collective, const Errand& errand,
                         const Link& link) {
  const algorithm::Algorithm& one = algorithm::find_algorithm(name);
  return cost::program_seconds(make_program(one, collective, {.ranks = errand.ranks, .blocks = errand.ranks}),
                               link, errand.bytes);
}

void add_ways(Collective collective, std::vector<Way>& ways) {
  for (const algorithm::Algorithm& one : algorithm::algorithms()) {
    if (has(one, collective)) {
      ways.push_back({.algorithm = std::string(one.name)});
    }
  }
}

void add_sums(const Errand& errand, std::vector<Way>& ways) {
  const std::vector<std::string> gathers =
      errand.operation == Operation::all_reduce
          ? std::vector<std::string>{"ring", "pairwise", "halving-doubling", "bruck"}
          : std::vector<std::string>{""};
  for (const std::string& gather : gathers) {
    ways.push_back({.algorithm = "direct", .then = gather});
  }
  if (errand.bytes * errand.ranks <= kMostGathered) {
    ways.push_back({.algorithm = "gather"});
  }
}

}  // namespace

std::vector<Way> ways(const Errand& errand) {
  std::vector<Way> all;
  switch (errand.operation) {
    case Operation::barrier:
      return {{.algorithm = "bruck"}};
    case Operation::all_to_all:
      return {{.algorithm = "pairwise"}};
    case Operation::all_gather:
      add_ways(Collective::all_gather, all);
      return all;
    case Operation::broadcast:
      add_ways(Collective::broadcast, all);
      return all;
    case Operation::reduce_scatter:
      add_sums(errand, all);
      if (!errand.exact && errand.bytes <= kMostCopied) {
        add_ways(Collective::reduce_scatter, all);
      }
      return all;
    case Operation::all_reduce:
      add_sums(errand, all);
      if (!errand.exact) {
        add_ways(Collective::all_reduce, all);
      }
      return all;
  }
  return all;
}

double modelled_seconds(const Errand& errand, const Way& way, const Link& link) {
  Errand all_contributions = errand;
  all_contributions.bytes = errand.bytes * errand.ranks;
  switch (errand.operation) {
    case Operation::barrier:
      return algorithm_seconds(way.algorithm, Collective::all_gather, errand, link);
    case Operation::all_to_all:
      return cost::pairwise_all_to_all_seconds(link, errand.ranks, errand.bytes);
    case Operation::all_gather:
      return algorithm_seconds(way.algorithm, Collective::all_gather, errand, link);
    case Operation::broadcast: {
      // Segments follow each other down the line, and down the trees, where blocks alone would not.
      const double pipeline = std::max(0, errand.ranks - 2) * link.beta_seconds_per_byte *
                              static_cast<double>(std::min(errand.bytes, way.segment_bytes));
      if (way.algorithm == "ring") {
        return cost::pipelined_broadcast_seconds(link, errand.ranks, errand.bytes) + pipeline;
      }
      return algorithm_seconds(way.algorithm, Collective::broadcast, errand, link);
    }
    case Operation::reduce_scatter:
    case Operation::all_reduce:
      break;
  }
  if (way.algorithm == "gather") {
    return algorithm_seconds("bruck", Collective::all_gather, all_contributions, link);
  }
  if (way.algorithm == "direct") {
    const double scatter = cost::ring_reduce_scatter_seconds(link, errand.ranks, errand.bytes);
    return errand.operation == Operation::reduce_scatter
               ? scatter
               : scatter + algorithm_seconds(way.then, Collective::all_gather, errand, link);
  }
  return algorithm_seconds(
      way.algorithm,
      errand.operation == Operation::reduce_scatter ? Collective::reduce_scatter : Collective::all_reduce,
      errand, link);
}

Way choose_by_model(const Errand& errand, const Link& link) {
  const std::vector<Way> all = ways(errand);
  if (all.size() == 1) {
    return all.front();
  }
  std::vector<double> seconds;
  for (const Way& way : all) {
    seconds.push_back(modelled_seconds(errand, way, link));
  }
  const double enough = *std::min_element(seconds.begin(), seconds.end()) * 1.05;
  const auto first = std::find_if(seconds.begin(), seconds.end(), [&](double one) { return one <= enough; });
  return all[static_cast<std::size_t>(first - seconds.begin())];
}

}  // namespace dear::programs
