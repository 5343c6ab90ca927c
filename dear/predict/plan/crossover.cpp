#include "dear/predict/plan/crossover.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/units.h"
#include "dear/predict/plan/breakdown.h"

namespace dear::plan {
namespace {

// A gain below it is none: rounding, or all communication hides with compression and without.
constexpr double kGain = 1e-6;
constexpr double kFarthest = 1e6;
constexpr double kPrecision = 1e-4;  // of the bandwidth

// Both ways at one bandwidth.
class Both {
 public:
  // `alpha` and `beta` as scaled(); `codec` multiplies the codec's times.
  Both(const Contest& contest, double alpha, double beta, double codec = 1) {
    const Cluster cluster = scaled(contest.cluster, alpha, beta);
    const cost::CollectiveTimes times = cost::times_on(cluster, contest.times);
    dense = sim::evaluate(contest.policy, contest.workload, contest.dense, cluster, times, contest.options);
    sim::EvaluateOptions options = contest.options;
    options.compression = contest.compression;
    if (codec == 0) options.compression->codec = {};
    compressed = sim::evaluate(contest.policy, contest.workload, contest.compressed, cluster, times, options);
  }

  [[nodiscard]] bool pays() const {
    return compressed.iteration.seconds < dense.iteration.seconds * (1 - kGain);
  }

  sim::Evaluation dense, compressed;
};

std::string why_not(const Contest& contest, double beta) {
  const Both at(contest, 1, beta);
  if (at.dense.exposed_communication_seconds <= kGain * at.dense.iteration.seconds)
    return "communication hides under computation already";
  if (contest.compression.compression.gathers() && at.compressed.r_seconds >= at.dense.r_seconds)
    return fmt::format("every rank gathers the payloads of all {}, which takes {} instead of {}",
                       contest.cluster.ranks(), format_seconds(at.compressed.r_seconds),
                       format_seconds(at.dense.r_seconds));
  if (Both(contest, 1, beta, 0).pays())
    return fmt::format("the codec takes {} of an iteration, more than the wire saves",
                       format_seconds(at.compressed.codec_seconds));
  if (Both(contest, 0, beta).pays()) return "start-up of messages, which compression does not shorten";
  return "it shortens nothing that the iteration waits for";
}

}  // namespace

Crossover find_crossover(const Contest& contest) {
  const double here = outermost_bits_per_second(contest.cluster);
  double slow = kFarthest, fast = 1 / kFarthest;  // in multiples of beta
  if (Both(contest, 1, fast).pays())
    return {.bits_per_second = std::numeric_limits<double>::infinity(), .here = here, .why = {}};
  if (!Both(contest, 1, slow).pays()) return {.bits_per_second = 0, .here = here, .why = why_not(contest, 1)};
  while (slow > fast * (1 + kPrecision)) {
    const double middle = std::sqrt(slow * fast);
    (Both(contest, 1, middle).pays() ? slow : fast) = middle;
  }
  return {.bits_per_second = here / slow, .here = here, .why = why_not(contest, fast)};
}

}  // namespace dear::plan
