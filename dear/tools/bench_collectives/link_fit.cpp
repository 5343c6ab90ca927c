#include "dear/tools/bench_collectives/link_fit.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/cost/fit.h"
#include "dear/platform/cost/ring.h"

namespace dear::bench_collectives {
namespace {

struct Model {
  const char* name;
  double (*seconds)(const Link& link, int ranks, std::int64_t bytes);
};

Model model_of(MeasuredOperation operation) {
  switch (operation) {
    case MeasuredOperation::pair:
    case MeasuredOperation::all_reduce:
      return {"ring", cost::ring_all_reduce_seconds};
    case MeasuredOperation::reduce_scatter:
      return {"ring", cost::ring_reduce_scatter_seconds};
    case MeasuredOperation::all_gather:
      return {"ring", cost::ring_all_gather_seconds};
    case MeasuredOperation::broadcast:
      return {"pipelined chain", cost::pipelined_broadcast_seconds};
    case MeasuredOperation::all_to_all:
      return {"pairwise exchange", cost::pairwise_all_to_all_seconds};
    case MeasuredOperation::all_to_all_v:
    case MeasuredOperation::barrier:
      break;
  }
  throw ConfigError(
      fmt::format("alpha and beta cannot be fitted to {}: measure another operation that moves bytes",
                  operation == MeasuredOperation::barrier ? "a barrier" : "uneven blocks"));
}

// Medians over the sizes, of those that were measured while their ranks computed. What is quicker then was so
// by chance.
Interference interference_of(const std::vector<Result>& results, const std::vector<const Result*>& alone) {
  std::vector<double> communication, computation;
  for (const Result& result : results) {
    if (!result.computation_slowdown) continue;
    const auto other = std::find_if(alone.begin(), alone.end(),
                                    [&](const Result* one) { return one->bytes == result.bytes; });
    if (other == alone.end()) continue;
    communication.push_back(result.seconds.median / (*other)->seconds.median);
    computation.push_back(*result.computation_slowdown);
  }
  return {.communication = std::max(1.0, spread_of(communication).median),
          .computation = std::max(1.0, spread_of(computation).median)};
}

}  // namespace

Cluster fit_cluster(const std::vector<Result>& results, MeasuredOperation operation) {
  const Model model = model_of(operation);
  std::vector<cost::Sample> samples;
  std::vector<const Result*> measured;
  for (const Result& result : results) {
    if (result.backend == results.front().backend && result.operation == operation &&
        !result.computation_slowdown) {
      measured.push_back(&result);
      samples.push_back(
          cost::make_sample([&](const Link& link) { return model.seconds(link, result.ranks, result.bytes); },
                            result.seconds.median));
    }
  }
  const cost::LinkFit fit = cost::fit_link(samples);
  const Result& first = *measured.front();
  FitRecord record{.backend = first.backend,
                   .operation = std::string(name_of(operation)),
                   .dtype = std::string(dear::name_of(first.dtype)),
                   .model = model.name,
                   .rms_residual = fit.rms_residual,
                   .worst_residual = fit.worst_residual};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    record.samples.push_back({.bytes = measured[i]->bytes,
                              .seconds = samples[i].seconds,
                              .modelled_seconds = cost::modelled_seconds(fit.link, samples[i])});
  }
  Cluster cluster = flat_cluster(
      {.name = fmt::format("{}, {} ranks", first.backend, first.ranks), .link = fit.link}, first.ranks);
  cluster.fit = std::move(record);
  cluster.interference = interference_of(results, measured);
  return cluster;
}

std::string fit_text(const Cluster& cluster) {
  const FitRecord& fit = *cluster.fit;
  const auto& [alpha, beta] = cluster.dimensions.front().link;
  std::string text = fmt::format(
      "{} as a {}: alpha {}, beta {:.4g} s/byte{}; residuals {:.0f} % in the mean square, {:.0f} % at "
      "worst\n",
      fit.backend, fit.model, format_seconds(alpha), beta,
      beta > 0 ? fmt::format(" ({:.3g} GB/s)", 1e-9 / beta) : "", 100 * fit.rms_residual,
      100 * fit.worst_residual);
  if (cluster.interference != Interference{})
    text += fmt::format(
        "interference: communication takes {:.2f} times as long while ranks compute, and computation {:.2f} "
        "times\n",
        cluster.interference.communication, cluster.interference.computation);
  for (const FitRecord::Sample& sample : fit.samples) {
    text += fmt::format("  {:>9}  measured {:>9}  modelled {:>9}  {:+.0f} %\n", format_bytes(sample.bytes),
                        format_seconds(sample.seconds), format_seconds(sample.modelled_seconds),
                        100 * (sample.modelled_seconds / sample.seconds - 1));
  }
  return text;
}

}  // namespace dear::bench_collectives
