#include "studies/homomorphic/throughput.h"

#include "studies/homomorphic/sizes.h"
#include "studies/report/machine.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/ring.h"
#include "dear/schedule/codec/measure_codec.h"
#include "dear/schedule/codec/sketch_shape.h"

namespace dear::studies::homomorphic {
namespace {

constexpr double kMore = 1.05;  // keys than expected: see codec::measure_codec()
constexpr float kLearningRate = 1;

using Clock = std::chrono::steady_clock;

Compression compression_of(const SketchSpec& spec) {
  Compression compression{.scheme = Scheme::sketch};
  compression.sketch = spec;
  return compression;
}

std::vector<SketchSpeed> all_sketches(const SpeedOptions& options) {
  std::vector<SketchSpeed> all;
  const auto add = [&](const SketchSpec& spec, Peeling peeling, int ranks, double density) {
    all.push_back({.spec = spec, .peeling = peeling, .ranks = ranks, .density = density, .times = {}});
  };
  for (const double density : options.densities) {
    for (const SketchSpec::Index index : {SketchSpec::Index::bitmap, SketchSpec::Index::bloom}) {
      const SketchSpec spec = spec_of(kRowsPerKey, index);
      add(spec, Peeling::everyone, 1, density);
      for (const int ranks : options.ranks) add(spec, Peeling::owners, ranks, density);
    }
    SketchSpec exact = spec_of(kRowsPerKey, SketchSpec::Index::bitmap);
    exact.exact = true;
    add(exact, Peeling::owners, options.ranks.front(), density);
  }
  for (const double rows_per_key : options.rows_per_key)
    add(spec_of(rows_per_key, SketchSpec::Index::bitmap), Peeling::everyone, 1, options.density);
  return all;
}

// The union of so many workers' gradients in the first step, as elements that are not zero.
std::vector<float> union_of(const SpeedOptions& options, int workers) {
  const Opinions opinions(options.recommender, 1);
  const std::vector<float> parameters = initial_parameters(options.recommender, 1);
  Recommender recommender(options.recommender);
  Ratings ratings;
  std::vector<float> gradient(parameters.size()), any(parameters.size());
  for (int worker = 0; worker < workers; ++worker) {
    opinions.draw(0, worker, options.batch, ratings);
    recommender.loss_and_gradient(parameters, ratings, gradient);
    for (std::size_t i = 0; i < any.size(); ++i)
      if (gradient[i] != 0) any[i] = 1;
  }
  return any;
}

RecommenderSpeed recommender_of(const SpeedOptions& options, int ranks) {
  RecommenderSpeed speed{.shape = options.recommender, .batch = options.batch, .sketch = {}};
  const std::int64_t elements = options.recommender.parameters();
  const std::array<std::int64_t, 4> keys = codec::count_keys(union_of(options, ranks));
  SketchSpec spec;
  spec.block = codec::choose_block(spec, elements, ranks, keys);
  const auto at = std::find(codec::kBlocks.begin(), codec::kBlocks.end(), spec.block);
  const auto blocks = static_cast<double>((elements + spec.block - 1) / spec.block);
  speed.density = static_cast<double>(keys[0]) / static_cast<double>(elements);
  speed.sketch = {
      .spec = spec,
      .peeling = Peeling::owners,
      .ranks = ranks,
      .density = static_cast<double>(keys[static_cast<std::size_t>(at - codec::kBlocks.begin())]) / blocks,
      .times = {}};
  return speed;
}

double compute_seconds(const SpeedOptions& options) {
  const Opinions opinions(options.recommender, 1);
  std::vector<float> parameters = initial_parameters(options.recommender, 1);
  std::vector<float> gradient(parameters.size());
  Recommender recommender(options.recommender);
  Ratings ratings;
  std::vector<double> seconds;
  for (int step = 0; step < 5; ++step) {
    opinions.draw(step, 0, options.batch, ratings);
    const auto begin = Clock::now();
    recommender.loss_and_gradient(parameters, ratings, gradient);
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= kLearningRate * gradient[i];
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return studies::median_of(std::move(seconds));
}

}  // namespace

std::string_view name_of(SketchSpec::Index index) {
  switch (index) {
    case SketchSpec::Index::automatic:
      return "automatic";
    case SketchSpec::Index::bitmap:
      return "bitmap";
    case SketchSpec::Index::bloom:
      break;
  }
  return "Bloom filter";
}

Speeds measure_speeds(const SpeedOptions& options, const studies::Progress& progress) {
  if (options.rounds < 1)
    throw ConfigError(fmt::format("{} rounds measure nothing: one at least", options.rounds));
  Speeds speeds{.machine = studies::this_machine(),
                .load = studies::load_of_this_machine(),
                .sketches = all_sketches(options),
                .recommenders = {}};
  for (const int ranks : options.ranks) speeds.recommenders.push_back(recommender_of(options, ranks));
  std::vector<SketchSpeed*> measured;
  for (SketchSpeed& one : speeds.sketches) measured.push_back(&one);
  for (RecommenderSpeed& one : speeds.recommenders) measured.push_back(&one.sketch);
  std::vector<std::vector<double>> encode(measured.size()), peel(measured.size()), decode(measured.size());
  std::vector<double> compute;
  studies::Pieces pieces(progress, "codecs", measured.size() * static_cast<std::size_t>(options.rounds));
  for (int round = 0; round < options.rounds; ++round) {
    compute.push_back(compute_seconds(options));
    for (std::size_t i = 0; i < measured.size(); ++i) {
      const CodecTimes times =
          codec::measure_codec(compression_of(measured[i]->spec), measured[i]->ranks, measured[i]->density);
      encode[i].push_back(times.encode_seconds_per_byte);
      peel[i].push_back(times.second_encode_seconds_per_byte);
      decode[i].push_back(times.decode_seconds_per_byte);
      pieces.done_one();
    }
  }
  for (std::size_t i = 0; i < measured.size(); ++i)
    measured[i]->times = {.encode_seconds_per_byte = studies::median_of(encode[i]),
                          .second_encode_seconds_per_byte = studies::median_of(peel[i]),
                          .decode_seconds_per_byte = studies::median_of(decode[i])};
  for (RecommenderSpeed& one : speeds.recommenders) one.compute_seconds = studies::median_of(compute);
  return speeds;
}

studies::Line sketch_line(const studies::Traffic& traffic, const SketchSpeed& speed, int ranks) {
  const int owners = speed.peeling == Peeling::owners ? ranks : 1;
  const auto elements = static_cast<double>(traffic.elements);
  const double all = std::ceil(elements / static_cast<double>(speed.spec.block));
  const double keys = speed.density * all;
  const codec::SketchShape shape =
      codec::shape_for(speed.spec, traffic.elements, owners, std::max(1.0, kMore * keys), 1);
  const std::int64_t index = 8 * shape.index_words();
  const std::int64_t rows = shape.values() * size_of(speed.spec.exact ? DType::i64 : DType::f32);
  const double recovered = keys + (all - keys) * codec::false_positives(shape, keys);
  const std::int64_t values = std::llround(4 * recovered * static_cast<double>(shape.block));
  const double codec_seconds =
      4 * elements *
      (speed.times.encode_seconds_per_byte + speed.times.second_encode_seconds_per_byte +
       speed.times.decode_seconds_per_byte);
  return studies::line_through(traffic.alpha_seconds, codec_seconds, [&](const Link& link) {
    const double of_index = cost::ring_all_reduce_seconds(link, ranks, index);
    if (speed.peeling == Peeling::everyone)
      return of_index + cost::ring_all_reduce_seconds(link, ranks, rows);
    return of_index + cost::ring_reduce_scatter_seconds(link, ranks, rows) +
           cost::ring_all_gather_seconds(link, ranks, values);
  });
}

}  // namespace dear::studies::homomorphic
