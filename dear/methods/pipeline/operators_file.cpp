#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/methods/pipeline/operators.h"

namespace dear::methods::pipeline {
namespace {

constexpr JsonFormat kOperatorsFormat = {.name = "dear-operators", .version = 1, .kind = "file of operators"};
using Names = std::unordered_map<std::string, OperatorId>;

OperatorId read_operator_id(const JsonField& field, const Names& names) {
  const std::string name = field.text();
  const auto found = names.find(name);
  if (found == names.end())
    field.fail(
        fmt::format("there is no operator '{}': list it, or give another", printable(shortened(name, 100))));
  return found->second;
}

Operator read_operator(const JsonField& field, const Names& names) {
  field.expect_members(
      {"name", "inputs", "forward_work", "parameter_bytes", "output_bytes"},
      {"kind", "input_gradient_work", "weight_gradient_work", "kept_bytes", "dtype", "tied", "picks_rows"});
  Operator op{.name = field.member("name").text(),
              .forward_work = field.member("forward_work").number(),
              .parameter_bytes = field.member("parameter_bytes").integer(),
              .output_bytes = field.member("output_bytes").integer()};
  for (const JsonField& input : field.member("inputs").elements())
    op.inputs.push_back(read_operator_id(input, names));
  if (field.has("kind")) op.kind = field.member("kind").text();
  op.input_gradient_work = field.has("input_gradient_work") ? field.member("input_gradient_work").number()
                           : op.inputs.empty()              ? 0
                                                            : op.forward_work;
  op.weight_gradient_work = field.has("weight_gradient_work") ? field.member("weight_gradient_work").number()
                            : op.parameter_bytes == 0         ? 0
                                                              : op.forward_work;
  op.kept_bytes = field.has("kept_bytes") ? field.member("kept_bytes").integer() : op.output_bytes;
  if (field.has("dtype")) {
    const JsonField dtype = field.member("dtype");
    const std::string name = dtype.text();
    try {
      op.dtype = parse_dtype(name);
    } catch (const ConfigError& error) {
      dtype.fail(error.what());
    }
  }
  if (field.has("tied")) op.tied = read_operator_id(field.member("tied"), names);
  if (field.has("picks_rows")) op.picks_rows = field.member("picks_rows").boolean();
  return op;
}

Json to_value(const Operator& op, const OperatorDag& dag) {
  Json inputs = Json::array();
  for (const OperatorId input : op.inputs) inputs.push_back(dag[input].name);
  Json value{{"name", op.name}};
  if (!op.kind.empty()) value["kind"] = op.kind;
  value["inputs"] = std::move(inputs);
  value["forward_work"] = op.forward_work;
  value["input_gradient_work"] = op.input_gradient_work;
  value["weight_gradient_work"] = op.weight_gradient_work;
  value["parameter_bytes"] = op.parameter_bytes;
  value["output_bytes"] = op.output_bytes;
  value["kept_bytes"] = op.kept_bytes;
  value["dtype"] = name_of(op.dtype);
  if (op.tied) value["tied"] = dag[*op.tied].name;
  if (op.picks_rows) value["picks_rows"] = true;
  return value;
}

}  // namespace

OperatorDag parse_operators(std::string_view json, const std::string& name_of_source) {
  const Json document = parse_json_file(json, name_of_source, kOperatorsFormat);
  const JsonField root(document, name_of_source);
  root.expect_members({"format", "version", "name", "operators"});
  const std::vector<JsonField> fields = root.member("operators").elements();
  Names names;
  for (const JsonField& field : fields)
    names.emplace(field.member("name").text(), static_cast<OperatorId>(names.size()));
  if (names.size() != fields.size()) {
    names.clear();
    for (const JsonField& field : fields)
      if (!names.emplace(field.member("name").text(), 0).second)
        field.member("name").fail("two operators have this name: give each one of its own");
  }
  std::vector<Operator> operators;
  for (const JsonField& field : fields) operators.push_back(read_operator(field, names));
  try {
    return {root.member("name").text(), std::move(operators)};
  } catch (const ConfigError& error) {
    root.fail(error.what());
  }
}

OperatorDag read_operators(const std::string& path) { return parse_operators(os::read_file(path), path); }

std::string to_json(const OperatorDag& dag) {
  try {
    std::string lines;
    for (const Operator& op : dag.operators())
      lines += (lines.empty() ? "\n    " : ",\n    ") + to_value(op, dag).dump();
    return fmt::format(
        "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"name\": {},\n  \"operators\": [{}\n  ]\n}}\n",
        kOperatorsFormat.name, kOperatorsFormat.version, Json(dag.name()).dump(), lines);
  } catch (const Json::type_error&) {
    throw ConfigError("a name in a model is not UTF-8: rename it");
  }
}

void write_operators(const OperatorDag& dag, const std::string& path) {
  os::write_file_atomically(path, to_json(dag));
}

}  // namespace dear::methods::pipeline
