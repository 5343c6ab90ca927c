#include "studies/homomorphic/findings.h"

#include "studies/training/paired.h"
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"

namespace dear::studies::homomorphic {
namespace {

constexpr double kNear = 0.025;  // the threshold
constexpr std::size_t kSlowNetworks = 2;

// Where something is reached: "at 0.1 %, 1 %".
std::string named(const std::vector<std::string>& all) {
  return all.empty() ? "nowhere" : fmt::format("at {}", fmt::join(all, ", "));
}

std::string aggregates_faster(const HomomorphicOptions& options, const Findings& findings) {
  std::vector<std::string> reached;
  const int ranks = options.speeds.ranks.front();
  double most = 0;
  for (const double density : options.speeds.densities) {
    double here = 0;
    for (const SketchSpec::Index index : {SketchSpec::Index::bitmap, SketchSpec::Index::bloom})
      for (const double bits : options.bits_per_second)
        here = std::max(here, throughput(options, findings.speed_of(index, Peeling::everyone, 1, density),
                                         ranks, bits / 8));
    if (here >= kPaperThroughput) reached.push_back(studies::percent(density));
    most = std::max(most, here);
  }
  return fmt::format(
      "Aggregation throughput rises up to {} times in the abstract. With sketches all-reduced and peeled by "
      "everyone on {} ranks, the better index and the best of the bandwidths, it is reached at {} of {} "
      "densities of the union{}, and {:.3g} times at most: the density decides, and that of the abstract is "
      "not known to us.",
      kPaperThroughput, ranks, reached.empty() ? "none" : std::to_string(reached.size()),
      options.speeds.densities.size(), reached.empty() ? "" : fmt::format(" ({})", fmt::join(reached, ", ")),
      most);
}

std::string iterates_faster(const HomomorphicOptions& options, const Findings& findings) {
  std::string text =
      fmt::format("Iterations are up to {} times as fast in the abstract. A recommender", kPaperIterations);
  for (const RecommenderSpeed& speed : findings.speeds.recommenders) {
    double most = 0;
    std::vector<std::string> reached;
    for (const double bits : options.bits_per_second) {
      const double times = iterations(options, speed, bits / 8);
      if (times >= kPaperIterations) reached.push_back(fmt::format("{:g} Gb/s", 1e-9 * bits));
      most = std::max(most, times);
    }
    text += fmt::format("{} on {} ranks reaches that {}, and {:.3g} times at most",
                        &speed == findings.speeds.recommenders.data() ? "" : ";", speed.sketch.ranks,
                        named(reached), most);
  }
  return text + ": the bandwidth decides, and the density of its gradients.";
}

studies::Statement peels_above_the_threshold(const Findings& findings) {
  studies::Cases cases(
      fmt::format("All keys come out above {} rows for each key, and never below", kThreshold));
  for (const RecoveryRate& rate : findings.recovery) {
    if (rate.keys < 10'000 && rate.keys != findings.recovery.back().keys) continue;
    const bool above = rate.rows_per_key > kThreshold;
    const bool held = above ? rate.whole >= kAlways : rate.whole <= kNever;
    const bool near = std::abs(rate.rows_per_key - kThreshold) < kNear;
    cases.add(held, near || !held ? fmt::format("{} keys, {}: {}", rate.keys, rate.rows_per_key,
                                                studies::percent(rate.whole))
                                  : "");
  }
  return cases.finish("; all others, farther off, as said");
}

studies::Statement collapses_below_the_threshold(const Findings& findings) {
  studies::Cases cases("Below it recovery collapses: with 1.2 rows for each key half of the keys stay");
  for (const RecoveryRate& rate : findings.recovery)
    if (rate.rows_per_key == 1.2)
      cases.add(std::abs(rate.left - 0.5) <= kHalf,
                fmt::format("{} keys: {} stay", rate.keys, studies::percent(rate.left)));
  return cases.finish();
}

studies::Statement is_lossless_in_integers(const Findings& findings) {
  studies::Cases cases("In integers the recovered sum is the dense sum, bit for bit");
  ExactSums all;
  for (const ExactSums& sums : findings.exact) {
    if (sums.sized_for < 1) continue;
    cases.add(sums.exact > 0 && sums.exact + sums.reported == sums.trials);
    all.trials += sums.trials;
    all.exact += sums.exact;
    all.reported += sums.reported;
  }
  return cases.finish(
      fmt::format("{} sums: {} the same bits, {} reported as not recovered, {} wrong without a word",
                  all.trials, all.exact, all.reported, all.trials - all.exact - all.reported));
}

studies::Statement failures_are_found(const Findings& findings) {
  studies::Cases cases("Too small a sketch is found out, and no estimate taken for the sum");
  ExactSums all;
  for (const ExactSums& sums : findings.exact) {
    if (sums.sized_for >= 1) continue;
    cases.add(sums.reported == sums.trials);
    all.trials += sums.trials;
    all.reported += sums.reported;
  }
  return cases.finish(fmt::format("{} of {} reported", all.reported, all.trials));
}

studies::Statement floats_are_precise(const Findings& findings) {
  studies::Cases cases(
      fmt::format("In fp32, where peeling subtracts, the sum is within {} (norm of the error)", kFloatError));
  for (const FloatError& error : findings.floats)
    cases.add(error.recovered > 0 && error.relative <= kFloatError,
              fmt::format("{} rows a key{}: {:.2g}", error.rows_per_key,
                          error.heavy_tailed ? ", heavy tails" : "", error.relative));
  return cases.finish();
}

studies::Statement the_union_counts(const Findings& findings) {
  studies::Cases cases(
      "The density of the union is what counts: of N workers with places of their own 1 - (1 - s)^N");
  for (const UnionAt& one : findings.unions)
    cases.add(std::abs(one.seen / one.expected - 1) <= kOfTheUnion,
              fmt::format("{} workers of {}: {}", one.workers, studies::percent(one.density),
                          studies::percent(one.seen)));
  return cases.finish();
}

studies::Statement bloom_is_smaller_when_sparse(const Findings& findings) {
  studies::Cases cases(
      fmt::format("A Bloom filter makes the smaller sketch below a density of about {}, a bitmap above",
                  studies::percent(kBloomBorder)));
  for (const SizeAt& size : findings.sizes)
    cases.add((size.density < kBloomBorder) == (size.bloom > size.bitmap),
              fmt::format("{}: {:.3g} and {:.3g}", studies::percent(size.density), size.bloom, size.bitmap));
  return cases.finish(
      fmt::format(" times smaller than dense with a Bloom filter and with a bitmap; equal at {}",
                  studies::percent(findings.index_border)));
}

studies::Statement bloom_is_faster_where_smaller(const HomomorphicOptions& options,
                                                 const Findings& findings) {
  studies::Cases cases("Where a Bloom filter makes the smaller sketch it adds up faster, too");
  const int ranks = options.speeds.ranks.front();
  for (std::size_t i = 0; i < kSlowNetworks && i < options.bits_per_second.size(); ++i) {
    const double bits = options.bits_per_second[i];
    for (const double density : options.speeds.densities) {
      if (density >= findings.index_border) continue;
      const auto times = [&](SketchSpec::Index index) {
        return throughput(options, findings.speed_of(index, Peeling::everyone, 1, density), ranks, bits / 8);
      };
      const double bloom = times(SketchSpec::Index::bloom), bitmap = times(SketchSpec::Index::bitmap);
      cases.add(bloom > bitmap, fmt::format("{} at {:g} Gb/s: {:.3g} and {:.3g}", studies::percent(density),
                                            1e-9 * bits, bloom, bitmap));
    }
  }
  return cases.finish(" times as many gradients a second as dense, with a Bloom filter and with a bitmap");
}

studies::Statement bytes_are_those_of_the_bound(const Findings& findings) {
  studies::Cases cases(
      "A sketch with a bitmap is 32 / (1 + 32 gamma s) times smaller, with gamma rows for each key");
  for (const SizeAt& size : findings.sizes)
    cases.add(size.bitmap <= size.bound * (1 + 1e-9) && size.bitmap >= kOfTheBound * size.bound,
              fmt::format("{}: {:.3g} of {:.3g}", studies::percent(size.density), size.bitmap, size.bound));
  return cases.finish();
}

studies::Statement throughput_is_near_the_bound(const HomomorphicOptions& options, const Findings& findings) {
  const double bits = options.bits_per_second.front();
  studies::Cases cases(
      fmt::format("At {:g} Gb/s aggregation with a bitmap is at least {} of this bound as fast as dense",
                  1e-9 * bits, kThroughputOfTheBound));
  const int ranks = options.speeds.ranks.front();
  for (const double density : options.speeds.densities) {
    const double bound = 32 / (1 + 32 * options.sizes.rows_per_key * density);
    const double times =
        throughput(options, findings.speed_of(SketchSpec::Index::bitmap, Peeling::everyone, 1, density),
                   ranks, bits / 8);
    cases.add(times >= kThroughputOfTheBound * bound,
              fmt::format("{}: {:.3g} of {:.3g}", studies::percent(density), times, bound));
  }
  return cases.finish();
}

studies::Statement learns_as_dense(const HomomorphicOptions& options, const Findings& findings) {
  const int steps = std::min(kSameSteps, options.learning.steps);
  studies::Cases cases(
      fmt::format("A lossless sum learns as dense: the curves of the loss are within {} for {} steps",
                  kSameCurve, steps));
  const MethodLearned& dense = findings.learned_with({});
  for (const char* const text : {kSketch, kExactSketch}) {
    const MethodLearned& sketch = findings.learned_with(Compression::parse(text));
    for (std::size_t seed = 0; seed < dense.at_best().by_seed.size(); ++seed) {
      const double most = apart(dense.at_best().by_seed[seed], sketch.rates[dense.best].by_seed[seed], steps);
      cases.add(most <= kSameCurve, fmt::format("{}, seed {}: {:.2g}", text, seed + 1, most));
    }
  }
  return cases.finish();
}

studies::Statement lossy_schemes_come_close(const Findings& findings) {
  studies::Cases cases("Schemes that lose, with error feedback, learn such gradients about as well as dense");
  for (const char* const text : {kTopK, kRandomBlock}) {
    const training::Paired worse =
        training::paired(findings.learned_with({}).at_best().tests(),
                         findings.learned_with(Compression::parse(text)).at_best().tests());
    cases.add(worse.at_most(kCloseLoss), fmt::format("{}: loss {}", text, worse.text()));
  }
  return cases.finish();
}

}  // namespace

const MethodLearned& Findings::learned_with(const Method& method) const {
  const auto found = std::find_if(learned.begin(), learned.end(),
                                  [&](const MethodLearned& one) { return one.method == method; });
  if (found == learned.end())
    throw ConfigError(fmt::format("how {} learns was not studied: add it", name_of(method)));
  return *found;
}

const SketchSpeed& Findings::speed_of(SketchSpec::Index index, Peeling peeling, int ranks, double density,
                                      bool exact) const {
  SketchSpec spec = spec_of(kRowsPerKey, index);
  spec.exact = exact;
  const auto found =
      std::find_if(speeds.sketches.begin(), speeds.sketches.end(), [&](const SketchSpeed& one) {
        return one.spec == spec && one.peeling == peeling && one.ranks == ranks && one.density == density;
      });
  if (found == speeds.sketches.end())
    throw ConfigError(fmt::format("the speed of a sketch of density {} on {} ranks was not measured: add it",
                                  density, ranks));
  return *found;
}

double throughput(const HomomorphicOptions& options, const SketchSpeed& speed, int ranks,
                  double bytes_per_second) {
  return studies::dense_line(options.traffic, ranks).seconds(bytes_per_second) /
         sketch_line(options.traffic, speed, ranks).seconds(bytes_per_second);
}

studies::Line dense_line_of(const HomomorphicOptions& options, const RecommenderSpeed& speed) {
  return studies::dense_line(
      {.elements = speed.shape.parameters(), .alpha_seconds = options.traffic.alpha_seconds},
      speed.sketch.ranks);
}

studies::Line sketch_line_of(const HomomorphicOptions& options, const RecommenderSpeed& speed) {
  return sketch_line({.elements = speed.shape.parameters(), .alpha_seconds = options.traffic.alpha_seconds},
                     speed.sketch, speed.sketch.ranks);
}

double iterations(const HomomorphicOptions& options, const RecommenderSpeed& speed, double bytes_per_second) {
  return (speed.compute_seconds + dense_line_of(options, speed).seconds(bytes_per_second)) /
         (speed.compute_seconds + sketch_line_of(options, speed).seconds(bytes_per_second));
}

std::vector<std::string> without_verdict(const HomomorphicOptions& options, const Findings& findings) {
  return {aggregates_faster(options, findings), iterates_faster(options, findings)};
}

std::vector<studies::Statement> judge(const HomomorphicOptions& options, const Findings& findings) {
  return {peels_above_the_threshold(findings),    collapses_below_the_threshold(findings),
          is_lossless_in_integers(findings),      failures_are_found(findings),
          floats_are_precise(findings),           the_union_counts(findings),
          bloom_is_smaller_when_sparse(findings), bloom_is_faster_where_smaller(options, findings),
          bytes_are_those_of_the_bound(findings), throughput_is_near_the_bound(options, findings),
          learns_as_dense(options, findings),     lossy_schemes_come_close(findings)};
}

}  // namespace dear::studies::homomorphic
