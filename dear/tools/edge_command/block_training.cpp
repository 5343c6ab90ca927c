#include "dear/tools/edge_command/block_training.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/spread.h"
#include "dear/base/vocabulary/units.h"
#include "dear/tools/options/numbers.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/table.h"

namespace dear::edge_command {
namespace {

using systems::edge::PartelJob;
using systems::edge::PartelTrained;

constexpr double kSameParameters = 1e-10;  // relative, in fp64

// By group and worker, seconds of an iteration as the plan has them.
std::vector<std::vector<double>> planned_of(const PartelJob& job) {
  std::vector<std::vector<double>> seconds;
  for (std::size_t group = 0; group < job.problem.groups.size(); ++group) {
    seconds.emplace_back();
    for (std::size_t worker = 0; worker < job.problem.groups[group].size(); ++worker)
      seconds.back().push_back(job.plan.whole[group] == 0
                                   ? 0
                                   : seconds_of(job.problem.groups[group][worker], job.problem,
                                                static_cast<double>(job.plan.whole[group]),
                                                job.plan.bandwidth[group][worker]));
  }
  return seconds;
}

}  // namespace

TrainSettings check(const TrainOptions& options) {
  constexpr std::array kModels{std::string_view("logistic"), std::string_view("network")};
  const auto* const model = std::find(kModels.begin(), kModels.end(), options.model);
  if (model == kModels.end())
    throw ConfigError(fmt::format("--model: there is no '{}': take logistic or network", options.model));
  PlanOptions plan = options.plan;
  plan.schemes = {options.scheme};
  const bool network = *model == "network";
  if (network && !plan.file.empty())
    throw ConfigError(fmt::format(
        "--model network: the groups of {} are for a linear model; leave the file out, or take logistic",
        plan.file));
  for (const auto& [option, value, most] : {std::tuple("--hidden", options.hidden, std::int64_t{100'000}),
                                            {"--features", options.features, 10'000},
                                            {"--samples", options.samples, 1'000'000},
                                            {"--iterations", options.iterations, 1'000'000}})
    cli::check_range(option, value, 1, most);
  if (!(options.step_size > 0) || !std::isfinite(options.step_size))
    throw ConfigError(fmt::format("--step-size is {}: give a number above 0", options.step_size));
  if (network) {  // blocks are of hidden units
    const auto width = static_cast<double>(options.features + 2);
    plan.parameters = options.hidden;
    plan.bits *= width;
    plan.cycles *= width;
  }
  const PlanSettings settings = check(plan);
  PartelJob job{.problem = settings.file.problem, .plan = {}, .task = {}};
  job.plan = cli::parse_option(fmt::format("--scheme {}", options.scheme), [&] {
    return solve_paba(job.problem, settings.schemes.front(), settings.file.deadline_seconds);
  });
  job.task = {.model = *model,
              .units = job.problem.parameters,
              .parts = static_cast<int>(job.problem.groups.front().size()),
              .samples = options.samples,
              .features = static_cast<int>(options.features),
              .seed = plan.seed};
  job.iterations = static_cast<int>(options.iterations);
  job.step_size = options.step_size;
  const systems::edge::BlockTask refused(job.task);
  return {.job = job, .described = settings.described};
}

std::string units_of(const PartelJob& job) {
  return job.task.model == "network" ? "hidden units" : "parameters";
}

std::string to_text(const PartelJob& job, const PartelTrained& trained) {
  const std::vector<std::vector<double>> planned = planned_of(job);
  cli::Table table({"group", "worker", units_of(job), "planned", "took"}, {.left_columns = 0});
  for (std::size_t group = 0; group < planned.size(); ++group)
    for (std::size_t worker = 0; worker < planned[group].size(); ++worker)
      table.add({std::to_string(group), std::to_string(worker), cli::with_separators(job.plan.whole[group]),
                 format_seconds(planned[group][worker]),
                 format_seconds(trained.worker_seconds[group][worker])});
  const Spread seconds = spread_of(trained.seconds);
  return fmt::format(
      "\n{}\nloss {:.4f} before, {:.4f} after {} iterations\nan iteration took {} ({} to {}), "
      "{:.3f} times what the plan says\n"
      "parameters differ from gradient descent in one process by {:.1e}, relative\n",
      table.to_string(), trained.losses.front(), trained.losses.back(), trained.seconds.size(),
      format_seconds(seconds.median), format_seconds(seconds.p10), format_seconds(seconds.p90),
      seconds.median / job.plan.whole_seconds, trained.difference);
}

std::string to_json(const PartelJob& job, const PartelTrained& trained) {
  return nlohmann::ordered_json{{"scheme", job.plan.scheme},
                                {"model", job.task.model},
                                {"blocks", job.plan.whole},
                                {"planned_seconds", job.plan.whole_seconds},
                                {"planned_worker_seconds", planned_of(job)},
                                {"seconds", trained.seconds},
                                {"worker_seconds", trained.worker_seconds},
                                {"losses", trained.losses},
                                {"difference", trained.difference}}
             .dump(2) +
         "\n";
}

void require_descent(const PartelTrained& trained) {
  if (!std::isfinite(trained.losses.back()))
    throw Error("the last loss is no finite number: lower --step-size");
  if (!(trained.difference <= kSameParameters))
    throw Error("the parameters are not those of gradient descent in one process");
}

}  // namespace dear::edge_command
