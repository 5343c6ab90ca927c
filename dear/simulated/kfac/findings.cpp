#include "dear/simulated/kfac/findings.h"

#include <algorithm>
#include <optional>
#include <random>

#include "dear/kfac/fusion.h"
#include "dear/kfac/modelled.h"
#include "dear/zoo/make_workload.h"

namespace dear::simulated::kfac {
namespace {

using dear::kfac::Costs;
using dear::kfac::Factor;
using dear::kfac::Job;
using dear::kfac::LayerCurvature;
using dear::kfac::LinearCost;
using dear::kfac::Prediction;
using dear::kfac::ReadyFactor;

Job job_of(const PublishedKfac& published, const PublishedKfac::Model& which) {
  const zoo::Model& model = zoo::find_model(which.model);
  const zoo::Device& device = zoo::find_device(published.device);
  return dear::kfac::make_job(zoo::make_workload(model, device, {.batch = which.batch, .dtype = DType::f32}),
                              model.make(model.size), device, {.batch = which.batch});
}

double seconds_of_factors(const Job& job) {
  double seconds = 0;
  for (const std::optional<LayerCurvature>& curvature : job.curvature)
    if (curvature) seconds += curvature->input_factor_seconds + curvature->output_factor_seconds;
  return seconds;
}

// The same job, with forward and backward in so many seconds, factors in so many, and nothing else: what
// gradients and updates take is in the passes.
Job at_pace(Job job, double pass_seconds, double factor_seconds) {
  const double pass = pass_seconds / (job.workload.forward_seconds() + job.workload.backward_seconds());
  const double factor = factor_seconds / seconds_of_factors(job);
  for (Layer& layer : job.workload.layers) {
    layer.forward_seconds *= pass;
    layer.backward_seconds *= pass;
  }
  for (std::optional<LayerCurvature>& curvature : job.curvature) {
    if (!curvature) continue;
    curvature->input_factor_seconds *= factor;
    curvature->output_factor_seconds *= factor;
    curvature->precondition_seconds = 0;
  }
  job.workload.update_seconds = 0;
  for (Tensor& tensor : job.workload.tensors) tensor.elements = 1;
  return job;
}

std::vector<Fed> fed_with_parts(const PublishedKfac& published, std::vector<PublishedJob> jobs,
                                std::size_t which, const Costs& calibrated) {
  const PublishedKfac::Parts& parts = parts_of(published, published.models[which].model, "d-kfac");
  PublishedJob& fed = jobs[which];
  fed.job = at_pace(fed.job, parts.passes + parts.gradients, parts.factors);
  const Costs costs = calibrate_to_parts(published, jobs, which, calibrated);
  std::vector<Fed> all;
  for (const char* const name : {"d-kfac", "mpd-kfac", "spd-kfac"}) {
    const Prediction prediction = predict(fed.job, costs, as_published(fed, dear::kfac::find_strategy(name)));
    all.push_back({name, prediction.parts, prediction.iteration_seconds});
  }
  return all;
}

Modelled model_with(const PublishedJob& job, const Costs& costs) {
  return {.factors_sent = by_fusion(job, costs, {"bulk", "alone", "threshold", "rule", "exact"}),
          .inverses = by_placement(job, costs),
          .steps = by_step(job, costs),
          .strategies = by_strategy(job.job, costs)};
}

}  // namespace

Findings simulate_models(const PublishedKfac& published, const study::Progress& progress) {
  study::Pieces told(progress, "models", published.models.size());
  std::vector<PublishedJob> jobs;
  for (const PublishedKfac::Model& model : published.models)
    jobs.push_back({job_of(published, model), published.cycle_seconds, published.threshold_elements});
  const Half half = fitted_half(jobs.size());
  Findings findings{.calibrated = calibrate(published, jobs, half),
                    .swapped = calibrate(published, jobs, other_half(half)),
                    .models = {}};
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const std::vector<Factor> factors = jobs[i].job.factors();
    ModelFindings found{.model = published.models[i].model,
                        .fitted = half[i],
                        .factors = factors.size(),
                        .factor_elements = elements_of(factors),
                        .as_published = model_with(jobs[i], published_costs(published)),
                        .calibrated = model_with(jobs[i], findings.calibrated),
                        .swapped = model_with(jobs[i], findings.swapped),
                        .fed = fed_with_parts(published, jobs, i, findings.calibrated)};
    for (const Tensor& tensor : jobs[i].job.workload.tensors) found.gradient_elements += tensor.elements;
    findings.models.push_back(std::move(found));
    told.done_one();
  }
  return findings;
}

FusionOutcome fusion_on_random_layers(int cases) {
  FusionOutcome outcome{.cases = cases};
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int i = 0; i < cases; ++i) {
    std::vector<ReadyFactor> factors(2 + random() % 60);
    for (ReadyFactor& factor : factors) {
      const std::int64_t dimension = std::int64_t{64} << (random() % 7);
      factor = {dimension * (dimension + 1) / 2, 4e-3 * unit(random)};
    }
    const LinearCost cost{.start_seconds = 5e-3 * unit(random), .seconds_per_element = 3e-9 * unit(random)};
    const double rule = dear::kfac::finish_seconds(factors, dear::kfac::fuse_by_rule(factors, cost), cost);
    const double best = dear::kfac::finish_seconds(factors, dear::kfac::fuse_exactly(factors, cost), cost);
    outcome.optimal += rule <= best * 1.0001 ? 1 : 0;
    outcome.within_5 += rule <= best * 1.05 ? 1 : 0;
    outcome.mean += rule / best / cases;
    outcome.worst = std::max(outcome.worst, rule / best);
  }
  return outcome;
}

}  // namespace dear::simulated::kfac
