#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/methods/pipeline/plan.h"

namespace dear::methods::pipeline {
namespace {

constexpr JsonFormat kPlanFormat = {.name = "dear-pipeline-plan", .version = 1, .kind = "plan of a pipeline"};
constexpr std::int64_t kMostNumbered = 1 << 20;  // stages, micro-batches

int read_device(const JsonField& field, const PairCluster& cluster) {
  const std::string name = field.text();
  for (std::size_t device = 0; device < cluster.devices.size(); ++device)
    if (cluster.devices[device].name == name) return static_cast<int>(device);
  field.fail(fmt::format("cluster '{}' has no device '{}': give one of its {}", cluster.name,
                         printable(shortened(name, 100)), cluster.devices.size()));
}

// `next` is the operator that the first name has to be.
Stage read_stage(const JsonField& field, std::int64_t next, const StageCosts& costs) {
  const OperatorDag& dag = costs.dag();
  Stage stage{.device = read_device(field.member("device"), costs.cluster()), .operators = {next, next}};
  for (const JsonField& name : field.member("operators").elements()) {
    const std::string text = name.text();
    const auto expected = static_cast<OperatorId>(stage.operators.end++);
    const bool all_listed = expected == dag.size();
    if (all_listed || text != dag[expected].name)
      name.fail(
          fmt::format("operator '{}' stands where {}: list all operators in the model's order, each once",
                      printable(shortened(text, 100)),
                      all_listed ? "all of the model have been listed"
                                 : fmt::format("'{}' comes next", dag[expected].name)));
  }
  return stage;
}

Message read_message(const JsonField& field, const std::map<std::string, OperatorId>& names) {
  field.expect_members({"from_stage", "output", "activation_ratio", "gradient_ratio"});
  const JsonField output = field.member("output");
  const auto found = names.find(output.text());
  if (found == names.end()) output.fail("the model has no such operator: give one of its names");
  return {.from_stage = static_cast<int>(field.member("from_stage").integer(0, kMostNumbered)),
          .output = found->second,
          .activation_ratio = field.member("activation_ratio").number(),
          .gradient_ratio = field.member("gradient_ratio").number()};
}

int micro_batches_of(const JsonField& root) {
  return static_cast<int>(root.member("micro_batches").integer(0, kMostNumbered));
}

std::string lines_of(const std::vector<Json>& items) {
  std::string text;
  for (const Json& item : items) text += (text.empty() ? "\n    " : ",\n    ") + item.dump();
  return items.empty() ? "[]" : "[" + text + "\n  ]";
}

}  // namespace

std::string to_json(const Plan& plan, const StageCosts& costs) {
  check(plan, costs);
  std::vector<Json> stages, messages;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    Json stage{{"device", costs.cluster().devices[index_of(plan.stages[s].device)].name}};
    if (!plan.warm_up.empty()) stage["warm_up"] = plan.warm_up[s];
    stage["operators"] = Json::array();
    for (std::int64_t id = plan.stages[s].operators.begin; id < plan.stages[s].operators.end; ++id)
      stage["operators"].push_back(costs.dag()[static_cast<OperatorId>(id)].name);
    stages.push_back(std::move(stage));
  }
  for (const Message& message : plan.messages)
    messages.push_back({{"from_stage", message.from_stage},
                        {"output", costs.dag()[message.output].name},
                        {"activation_ratio", message.activation_ratio},
                        {"gradient_ratio", message.gradient_ratio}});
  try {
    return fmt::format(
        "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"model\": {},\n  \"method\": {},\n"
        "  \"schedule\": \"{}\",\n  \"micro_batches\": {},\n  \"stages\": {},\n  \"compressed\": {}\n}}\n",
        kPlanFormat.name, kPlanFormat.version, Json(plan.model).dump(), Json(plan.method).dump(),
        name_of(plan.schedule), plan.micro_batches, lines_of(stages), lines_of(messages));
  } catch (const Json::type_error&) {
    throw ConfigError("a name in a plan is not UTF-8: rename it");
  }
}

Plan parse_plan(std::string_view json, const std::string& name_of_source, const StageCosts& costs) {
  const Json document = parse_json_file(json, name_of_source, kPlanFormat);
  const JsonField root(document, name_of_source);
  root.expect_members(
      {"format", "version", "model", "method", "schedule", "micro_batches", "stages", "compressed"});
  Plan plan{.model = root.member("model").text(), .method = root.member("method").text(), .stages = {}};
  if (plan.model != costs.dag().name())
    root.member("model").fail(fmt::format("the plan is of '{}', not of '{}': plan this model",
                                          printable(shortened(plan.model, 100)), costs.dag().name()));
  const JsonField schedule = root.member("schedule");
  const std::string kind = schedule.text();
  try {
    plan.schedule = find_schedule_kind(kind);
  } catch (const ConfigError& error) {
    schedule.fail(error.what());
  }
  plan.micro_batches = micro_batches_of(root);
  for (const JsonField& field : root.member("stages").elements()) {
    if (plans_warm_up(plan.schedule)) {
      field.expect_members({"device", "warm_up", "operators"});
      plan.warm_up.push_back(static_cast<int>(field.member("warm_up").integer(0, kMostNumbered)));
    } else {
      field.expect_members({"device", "operators"});
    }
    plan.stages.push_back(
        read_stage(field, plan.stages.empty() ? 0 : plan.stages.back().operators.end, costs));
  }
  std::map<std::string, OperatorId> names;
  for (OperatorId id = 0; id < costs.dag().size(); ++id) names[costs.dag()[id].name] = id;
  for (const JsonField& message : root.member("compressed").elements())
    plan.messages.push_back(read_message(message, names));
  try {
    check(plan, costs);
  } catch (const ConfigError& error) {
    root.fail(error.what());
  }
  return plan;
}

int read_micro_batches(const std::string& path) {
  const Json document = parse_json_file(os::read_file(path), path, kPlanFormat);
  return micro_batches_of(JsonField(document, path));
}

Plan read_plan(const std::string& path, const StageCosts& costs) {
  return parse_plan(os::read_file(path), path, costs);
}

void write_plan(const Plan& plan, const StageCosts& costs, const std::string& path) {
  os::write_file_atomically(path, to_json(plan, costs));
}

}  // namespace dear::methods::pipeline
