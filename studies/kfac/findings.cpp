#include "studies/kfac/findings.h"

#include "studies/report/draw.h"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>

#include "dear/methods/kfac/fusion.h"
#include "dear/methods/kfac/modelled.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/workload/zoo/make_workload.h"

namespace dear::studies::kfac {
namespace {

using dear::methods::kfac::Costs;
using dear::methods::kfac::Factor;
using dear::methods::kfac::Job;
using dear::methods::kfac::LayerCurvature;
using dear::methods::kfac::LinearCost;
using dear::methods::kfac::Prediction;
using dear::methods::kfac::ReadyFactor;

constexpr double kRounding = 1e-9;

Job job_of(const PublishedKfac& published, const PublishedKfac::Model& which) {
  const zoo::Model& model = zoo::find_model(which.model);
  const zoo::Device& device = zoo::find_device(published.device);
  return dear::methods::kfac::make_job(
      zoo::make_workload(model, device, {.batch = which.batch, .dtype = DType::f32}), model.make(model.size),
      device, {.batch = which.batch});
}

double seconds_of_factors(const Job& job) {
  double seconds = 0;
  for (const std::optional<LayerCurvature>& curvature : job.curvature)
    if (curvature) seconds += curvature->input_factor_seconds + curvature->output_factor_seconds;
  return seconds;
}

// Returns the same job, with forward and backward in so many seconds, factors in so many, and nothing else:
// what gradients and updates take is in the passes.
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

void feed_with_parts(const PublishedKfac& published, std::vector<PublishedJob> jobs, std::size_t which,
                     const Costs& calibrated, ModelFindings& found) {
  const PublishedKfac::Parts& parts = parts_of(published, published.models[which].model, "d-kfac");
  PublishedJob& fed = jobs[which];
  fed.job = at_pace(fed.job, parts.passes + parts.gradients, parts.factors);
  const auto played = [&](const char* name, const Costs& costs) {
    return predict(fed.job, costs, as_published(fed, dear::methods::kfac::find_strategy(name)));
  };
  const Costs costs = calibrate_to_parts(published, jobs, which, calibrated, kAllWays);
  for (const char* const name : {"d-kfac", "mpd-kfac", "spd-kfac"}) {
    const Prediction prediction = played(name, costs);
    found.fed.push_back({name, prediction.parts, prediction.iteration_seconds});
  }
  found.spd_seconds_without_its_own =
      played("spd-kfac", calibrate_to_parts(published, jobs, which, calibrated, kWaysOfOthers))
          .iteration_seconds;
}

Modelled model_with(const PublishedJob& job, const Costs& costs) {
  return {.factors_sent = by_fusion(job, costs, {"bulk", "alone", "threshold", "rule", "exact"}),
          .inverses = by_placement(job, costs),
          .steps = by_step(job, costs),
          .strategies = by_strategy(job.job, costs)};
}

}  // namespace

Findings simulate_models(const PublishedKfac& published, const studies::Progress& progress) {
  studies::Pieces told(progress, "models", published.models.size());
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
                        .fed = {}};
    feed_with_parts(published, jobs, i, findings.calibrated, found);
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
    const double rule =
        dear::methods::kfac::finish_seconds(factors, dear::methods::kfac::fuse_by_rule(factors, cost), cost);
    const double best =
        dear::methods::kfac::finish_seconds(factors, dear::methods::kfac::fuse_exactly(factors, cost), cost);
    outcome.optimal += rule <= best * 1.0001 ? 1 : 0;
    outcome.within_5 += rule <= best * 1.05 ? 1 : 0;
    outcome.mean += rule / best / cases;
    outcome.worst = std::max(outcome.worst, rule / best);
  }
  return outcome;
}

namespace {

struct RandomJob {
  Job job;
  Costs costs;
};

RandomJob random_job(studies::Draw& draw) {
  RandomJob made;
  made.job.workload.name = "random";
  for (int layer = draw.from_to(2, 25); layer > 0; --layer) {
    const std::int64_t inputs = std::int64_t{64} << draw.from_to(0, 6),
                       outputs = std::int64_t{64} << draw.from_to(0, 6);
    made.job.workload.tensors.push_back({.name = "w", .elements = inputs * outputs});
    made.job.workload.layers.push_back(
        {.name = "layer",
         .tensors = {static_cast<TensorId>(made.job.workload.tensors.size() - 1)},
         .forward_seconds = draw.below(5e-3),
         .backward_seconds = draw.below(1e-2)});
    made.job.curvature.emplace_back(LayerCurvature{.inputs = inputs,
                                                   .outputs = outputs,
                                                   .input_factor_seconds = draw.below(4e-3),
                                                   .output_factor_seconds = draw.below(4e-3)});
  }
  const double start = draw.power_of_10(-5, -2.5), each = draw.power_of_10(-10, -8.5);
  made.costs = {
      .ranks = 1 << draw.from_to(1, 6),
      .all_reduce = {2 * start, 2 * each},
      .reduce = {start, each},
      .broadcast = {start, each},
      .invert = dear::methods::kfac::InverseCost::cubic(draw.below(2e-3), draw.power_of_10(-13, -11))};
  return made;
}

struct Placed {
  double iteration_seconds = 0, phase_seconds = 0;
};
Placed placed(const RandomJob& random, dear::methods::kfac::PlacementRule rule) {
  const Costs& costs = random.costs;
  dear::methods::kfac::Strategy strategy = dear::methods::kfac::find_strategy("spd-kfac");
  strategy.placement = rule;
  const Grouping grouping = group(random.job.workload, BySize{dear::methods::kfac::kGradientBucketBytes});
  const dear::methods::kfac::Plan plan =
      dear::methods::kfac::make_plan(random.job, costs, strategy, grouping);
  return {dear::methods::kfac::predict(random.job, grouping, plan, costs).iteration_seconds,
          dear::methods::kfac::inverse_phase(plan.factors, plan.placement, costs.ranks,
                                             dear::methods::kfac::placement_costs(costs))
              .finish_seconds};
}

}  // namespace

std::vector<PlacementOutcome> placement_on_random_jobs(int jobs) {
  using dear::methods::kfac::PlacementRule;
  std::vector<PlacementOutcome> outcomes{{.placement = "balanced", .jobs = jobs},
                                         {.placement = "planned", .jobs = jobs}};
  studies::Draw draw(1);
  for (int i = 0; i < jobs; ++i) {
    const RandomJob random = random_job(draw);
    const Placed local = placed(random, PlacementRule::all_local),
                 dealt = placed(random, PlacementRule::round_robin);
    for (PlacementOutcome& outcome : outcomes) {
      const Placed ours =
          placed(random, outcome.placement == "planned" ? PlacementRule::planned : PlacementRule::balanced);
      const double longer =
          ours.iteration_seconds / std::min(local.iteration_seconds, dealt.iteration_seconds);
      const double phase_longer = ours.phase_seconds / std::min(local.phase_seconds, dealt.phase_seconds);
      outcome.slower += longer > 1 + kRounding ? 1 : 0;
      outcome.phase_slower += phase_longer > 1 + kRounding ? 1 : 0;
      outcome.worst = std::max(outcome.worst, longer);
      outcome.phase_worst = std::max(outcome.phase_worst, phase_longer);
      outcome.mean += std::log(longer) / jobs;
    }
  }
  for (PlacementOutcome& outcome : outcomes) outcome.mean = std::exp(outcome.mean);
  return outcomes;
}

}  // namespace dear::studies::kfac
