#include "dear/tools/cases/pipeline_plan.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/units.h"

namespace dear::cases {
namespace {

namespace pipeline = methods::pipeline;

std::string name_of_case(const PipelineCase& one) {
  return one.compression == "none" ? fmt::format("{} without compression", one.planner)
                                   : fmt::format("{} with {}", one.planner, one.compression);
}

// The stages of a place: "stage 3", "stages 3 and 11".
std::string stages_of(const PipelineCase& one, int place) {
  std::string text;
  int count = 0;
  for (int stage = place; stage < one.times.shape.stages(); stage += one.times.shape.places, ++count)
    text += (count > 0 ? " and " : "") + std::to_string(stage);
  return (count > 1 ? "stages " : "stage ") + text;
}

std::vector<std::string> why_of(const PipelineCase& one, const PipelineBounds& bounds) {
  const int micro_batches = one.plan.micro_batches;
  const double compute = bounds.compute_seconds * micro_batches, link = bounds.link_seconds * micro_batches;
  std::vector<std::string> why;
  why.push_back(
      fmt::format("The slowest device is {} ({}): it computes {} for each micro-batch, {} in an iteration.",
                  one.device_of(bounds.slowest_place), stages_of(one, bounds.slowest_place),
                  format_seconds(bounds.compute_seconds), format_seconds(compute)));
  const auto link_name = [&](int from, int to) {
    return fmt::format("the link from {} to {}", one.device_of(from), one.device_of(to));
  };
  const bool sends = bounds.link_from >= 0;
  if (sends)
    why.push_back(
        fmt::format("The slowest of its links is from {} to {}: each micro-batch keeps it busy for {}, an "
                    "iteration for {}.",
                    one.device_of(bounds.link_from), one.device_of(bounds.link_to),
                    format_seconds(bounds.link_seconds), format_seconds(link)));
  const double most = std::max({compute, link, bounds.first_seconds, bounds.exchange_seconds});
  const std::string seconds = format_seconds(one.seconds());
  if (most == bounds.exchange_seconds && most > 0) {
    why.push_back(
        fmt::format("The exchange of gradients of tied parameters between {} and {} bounds the iteration of "
                    "{}: it takes {}, once, and "
                    "is not compressed.",
                    one.device_of(bounds.exchange_from), one.device_of(bounds.exchange_to), seconds,
                    format_seconds(bounds.exchange_seconds)));
  } else if (most == compute) {
    why.push_back(fmt::format("What {} computes bounds the iteration of {}.",
                              one.device_of(bounds.slowest_place), seconds));
  } else if (most == link) {
    why.push_back(fmt::format("What {} carries bounds the iteration of {}.",
                              link_name(bounds.link_from, bounds.link_to), seconds));
  } else {
    why.push_back(fmt::format(
        "The way of one micro-batch through all stages and back bounds the iteration of {}: it takes "
        "{}, in which most devices wait; more micro-batches fill the pipeline.",
        seconds, format_seconds(bounds.first_seconds)));
  }
  return why;
}

std::vector<std::string> verdict_of(const PipelineCase& plan, const std::vector<PipelineCase>& rivals) {
  std::vector<std::string> verdict;
  const auto find = [&](std::string_view planner, bool compressed) -> const PipelineCase* {
    for (const PipelineCase& one : rivals)
      if (one.planner == planner && (one.compression != "none") == compressed) return &one;
    return nullptr;
  };
  if (const PipelineCase* const equal = find("equal-number", false); equal && plan.planner != "equal-number")
    verdict.push_back(fmt::format("{} is {:.2f} times as fast as {}.", name_of_case(plan),
                                  equal->seconds() / plan.seconds(), name_of_case(*equal)));
  const bool compressed = plan.compression != "none";
  if (const PipelineCase* const other = find(plan.planner, !compressed)) {
    const double gain = compressed ? other->seconds() / plan.seconds() : plan.seconds() / other->seconds();
    const PipelineCase& with = compressed ? plan : *other;
    verdict.push_back(fmt::format(
        "{} makes it {:.2f} times as fast and sends {} instead of {} in an iteration; it drops small "
        "elements of activations and gradients, which changes what is learnt: try it.",
        with.compression, gain, format_bytes(static_cast<std::int64_t>(with.sent_bytes())),
        format_bytes(static_cast<std::int64_t>((compressed ? *other : plan).sent_bytes()))));
  }
  return verdict;
}

// Says that fewer devices are faster, where they are; "" where nobody looks, or they are not.
std::string fewer_devices(const PipelineJob& job, pipeline::PlanOptions options, const PipelineCase& plan) {
  if (options.method != pipeline::PlanMethod::op_fence || options.devices == pipeline::DeviceUse::fastest)
    return "";
  options.devices = pipeline::DeviceUse::fastest;
  const PipelineCase fewer = play_plan(job, options);
  if (fewer.seconds() >= plan.seconds()) return "";
  return fmt::format(
      "{} of the {} devices alone are {:.2f} times as fast, {} an iteration: see --devices fastest.",
      fewer.times.shape.places, plan.times.shape.places, plan.seconds() / fewer.seconds(),
      format_seconds(fewer.seconds()));
}

nlohmann::ordered_json json_of(const Carried& carried) {
  return {{"dense_bytes", carried.dense_bytes},
          {"bytes", carried.bytes},
          {"ratio", carried.ratio},
          {"busy_seconds", carried.transfer.busy_seconds},
          {"latency_seconds", carried.transfer.latency_seconds}};
}

nlohmann::ordered_json stages_json(const PipelineCase& one) {
  const PipelineJob& job = *one.job;
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (std::size_t s = 0; s < one.plan.stages.size(); ++s) {
    const auto& [device, operators] = one.plan.stages[s];
    const std::size_t place = index_of(one.times.shape.place_of(static_cast<int>(s)));
    stages.push_back({{"stage", s},
                      {"device", job.device(device)},
                      {"site", job.sites[index_of(device)]},
                      {"operators", operators.size()},
                      {"first_operator", job.dag[static_cast<pipeline::OperatorId>(operators.begin)].name},
                      {"last_operator", job.dag[static_cast<pipeline::OperatorId>(operators.end - 1)].name},
                      {"parameter_bytes", parameter_bytes_of(one, s)},
                      {"compute_seconds", one.times.stages[s].all()},
                      {"device_peak_bytes", one.peak_bytes[place]},
                      {"device_memory_bytes", job.cluster.devices[index_of(device)].memory_bytes}});
  }
  return stages;
}

}  // namespace

std::int64_t parameter_bytes_of(const PipelineCase& one, std::size_t stage) {
  std::int64_t bytes = 0;
  const Range& operators = one.plan.stages[stage].operators;
  for (std::int64_t id = operators.begin; id < operators.end; ++id)
    bytes += one.job->dag[static_cast<pipeline::OperatorId>(id)].parameter_bytes;
  return bytes;
}

PipelineBounds bounds_of(const PipelineCase& one) {
  const pipeline::PipelineTimes& times = one.times;
  const pipeline::PipelineShape& shape = times.shape;
  PipelineBounds bounds;
  std::vector<double> computing(index_of(shape.places));
  std::map<std::pair<int, int>, double> carrying;
  for (int stage = 0; stage < shape.stages(); ++stage) {
    const int place = shape.place_of(stage);
    const std::size_t s = index_of(stage);
    computing[index_of(place)] += times.stages[s].all();
    bounds.first_seconds += times.stages[s].all();
    if (stage + 1 == shape.stages()) continue;
    const int next = shape.place_of(stage + 1);
    carrying[{place, next}] += times.activations[s].busy_seconds;
    carrying[{next, place}] += times.gradients[s].busy_seconds;
    bounds.first_seconds += times.activations[s].seconds() + times.gradients[s].seconds();
  }
  const auto slowest = std::max_element(computing.begin(), computing.end());
  bounds.slowest_place = static_cast<int>(slowest - computing.begin());
  bounds.compute_seconds = *slowest;
  for (const auto& [link, seconds] : carrying)
    if (seconds > bounds.link_seconds) {
      std::tie(bounds.link_from, bounds.link_to) = link;
      bounds.link_seconds = seconds;
    }
  for (const pipeline::Exchange& exchange : times.exchanges) {
    const double seconds = std::max(exchange.there.seconds(), exchange.back.seconds());
    if (seconds <= bounds.exchange_seconds) continue;
    bounds.exchange_seconds = seconds;
    bounds.exchange_from = shape.place_of(exchange.stages[0]);
    bounds.exchange_to = shape.place_of(exchange.stages[1]);
  }
  return bounds;
}

PipelineAnswer plan_pipeline(const PipelineJob& job, const PipelinePlanNames& names) {
  const std::vector<pipeline::PlanOptions> asked = find_plans(names, job.micro_batches);
  if (asked.size() != 1)
    throw ConfigError(fmt::format(
        "one plan is made, and {} were asked for: give one planner, schedule and compression", asked.size()));
  const pipeline::PlanOptions& options = asked.front();
  PipelineAnswer answer{.plan = play_plan(job, options), .rivals = {}, .left_out = {}, .bounds = {}};
  pipeline::LinkCompression compression = options.compression;
  if (compression.rule == pipeline::CompressionRule::none)
    compression = {.rule = pipeline::CompressionRule::ada_top_k, .ratio = names.ratio};
  for (const pipeline::PlanMethodInfo& planner : pipeline::plan_methods())
    for (const pipeline::LinkCompression& one : {pipeline::LinkCompression{}, compression}) {
      pipeline::PlanOptions rival = options;
      rival.method = planner.method;
      rival.compression = one;
      if (planner.method != pipeline::PlanMethod::op_fence) rival.devices = pipeline::DeviceUse::all;
      try {
        answer.rivals.push_back(play_plan(job, rival));
      } catch (const ConfigError& error) {
        answer.left_out.push_back(
            {.what = fmt::format("{}, compression {}", planner.name, text_of(one)), .reason = error.what()});
      }
    }
  std::stable_sort(answer.rivals.begin(), answer.rivals.end(),
                   [](const PipelineCase& a, const PipelineCase& b) { return a.seconds() < b.seconds(); });
  answer.bounds = bounds_of(answer.plan);
  answer.why = why_of(answer.plan, answer.bounds);
  answer.verdict = verdict_of(answer.plan, answer.rivals);
  const std::string hint = fewer_devices(job, options, answer.plan);
  if (!hint.empty()) answer.verdict.push_back(hint);
  return answer;
}

std::string to_json(const PipelineAnswer& answer) {
  const PipelineCase& plan = answer.plan;
  nlohmann::ordered_json document = json_of(plan);
  document["stages_of_plan"] = stages_json(plan);
  nlohmann::ordered_json links = nlohmann::ordered_json::array();
  for (std::size_t cut = 0; cut + 1 < plan.plan.stages.size(); ++cut)
    links.push_back({{"from", plan.job->device(plan.plan.stages[cut].device)},
                     {"to", plan.job->device(plan.plan.stages[cut + 1].device)},
                     {"activations", json_of(activations_over(plan, cut))},
                     {"gradients", json_of(gradients_over(plan, cut))}});
  document["links"] = std::move(links);
  const PipelineBounds& bounds = answer.bounds;
  document["slowest_device"] = plan.device_of(bounds.slowest_place);
  document["compute_seconds"] = bounds.compute_seconds;
  document["slowest_link"] = nullptr;
  if (bounds.link_from >= 0)
    document["slowest_link"] = {plan.device_of(bounds.link_from), plan.device_of(bounds.link_to)};
  document["link_seconds"] = bounds.link_seconds;
  document["first_seconds"] = bounds.first_seconds;
  document["exchange_seconds"] = bounds.exchange_seconds;
  nlohmann::ordered_json rivals = nlohmann::ordered_json::array();
  for (const PipelineCase& one : answer.rivals) rivals.push_back(json_of(one));
  document["rivals"] = std::move(rivals);
  nlohmann::ordered_json left_out = nlohmann::ordered_json::array();
  for (const LeftOutPlan& one : answer.left_out)
    left_out.push_back({{"plan", one.what}, {"reason", one.reason}});
  document["left_out"] = std::move(left_out);
  document["why"] = answer.why;
  document["verdict"] = answer.verdict;
  return document.dump(2) + "\n";
}

}  // namespace dear::cases
