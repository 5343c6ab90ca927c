#include "dear/workload/layers/workload_file.h"

#include <initializer_list>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear {
namespace {

constexpr JsonFormat kFormat = {.name = "dear-workload", .version = 4, .oldest = 1, .kind = "workload file"};

Tensor read_tensor(const JsonField& field) {
  field.expect_members({"name", "elements", "dtype"});
  Tensor tensor{.name = field.member("name").text(), .elements = field.member("elements").integer()};
  const JsonField dtype = field.member("dtype");
  const std::string name = dtype.text();
  try {
    tensor.dtype = parse_dtype(name);
  } catch (const ConfigError& error) {
    dtype.fail(error.what());
  }
  return tensor;
}

// Members that are not required, and the version that added each.
std::vector<std::string_view> added(std::int64_t version,
                                    std::initializer_list<std::pair<std::string_view, int>> members) {
  std::vector<std::string_view> names;
  for (const auto& [name, since] : members)
    if (version >= since) names.push_back(name);
  return names;
}

Layer read_layer(const JsonField& field, std::int64_t version) {
  field.expect_members({"name", "tensors", "forward_seconds", "backward_seconds"},
                       added(version, {{"activation_bytes", 2}}));
  Layer layer;
  layer.name = field.member("name").text();
  for (const JsonField& index : field.member("tensors").elements()) layer.tensors.push_back(index.index());
  layer.forward_seconds = field.member("forward_seconds").number();
  layer.backward_seconds = field.member("backward_seconds").number();
  if (field.has("activation_bytes")) layer.activation_bytes = field.member("activation_bytes").integer();
  return layer;
}

// One tensor or layer a line: readable, and a change shows as one line.
std::string lines_of(const std::vector<Json>& items) {
  std::string text;
  for (const Json& item : items) text += (text.empty() ? "\n    " : ",\n    ") + item.dump();
  return "[" + text + "\n  ]";
}

// Buckets and schedules know tensors by their names. Layers may share one: a module whose parameters are used
// in several places is several layers.
void require_names_of_their_own(const Workload& workload) {
  std::unordered_map<std::string_view, std::size_t> found;
  for (std::size_t t = 0; t < workload.tensors.size(); ++t)
    if (const auto [other, is_new] = found.emplace(workload.tensors[t].name, t); !is_new)
      throw ConfigError(
          fmt::format("tensors[{}] and tensors[{}] are both named '{}': give each a name of its own",
                      other->second, t, printable(shortened(other->first, 100))));
}

void require_readable_names(const Workload& workload) {
  const auto require = [](std::string_view text, const std::string& what) {
    require_readable(text, fmt::format("{} ('{}')", what, printable(shortened(text, 100))));
  };
  require(workload.name, "the name of a workload");
  require(workload.device, "the device of a workload");
  for (std::size_t t = 0; t < workload.tensors.size(); ++t)
    require(workload.tensors[t].name, fmt::format("the name of tensor {}", t));
  for (std::size_t l = 0; l < workload.layers.size(); ++l)
    require(workload.layers[l].name, fmt::format("the name of layer {}", l));
}

}  // namespace

Workload parse_workload(std::string_view json, const std::string& name_of_source) {
  const Json document = parse_json_file(json, name_of_source, kFormat);
  const JsonField root(document, name_of_source);
  const std::int64_t version = root.member("version").integer();
  root.expect_members({"format", "version", "name", "update_seconds", "tensors", "layers"},
                      added(version, {{"buffer_bytes", 2}, {"device", 3}, {"buffers", 4}}));
  Workload workload;
  workload.name = root.member("name").text();
  workload.update_seconds = root.member("update_seconds").number();
  if (root.has("buffer_bytes")) workload.buffer_bytes = root.member("buffer_bytes").integer();
  if (root.has("buffers")) workload.buffers = root.member("buffers").integer();
  if (root.has("device")) workload.device = root.member("device").text();
  for (const JsonField& tensor : root.member("tensors").elements())
    workload.tensors.push_back(read_tensor(tensor));
  for (const JsonField& layer : root.member("layers").elements())
    workload.layers.push_back(read_layer(layer, version));
  try {
    validate(workload);
    require_names_of_their_own(workload);
  } catch (const ConfigError& error) {
    root.fail(error.what());
  }
  return workload;
}

Workload read_workload(const std::string& path) { return parse_workload(os::read_file(path), path); }

std::string to_json(const Workload& workload) {
  validate(workload);
  require_names_of_their_own(workload);
  std::vector<Json> tensors;
  for (const Tensor& tensor : workload.tensors) {
    tensors.push_back(
        {{"name", tensor.name}, {"elements", tensor.elements}, {"dtype", name_of(tensor.dtype)}});
  }
  std::vector<Json> layers;
  for (const Layer& layer : workload.layers) {
    layers.push_back({{"name", layer.name},
                      {"tensors", layer.tensors},
                      {"forward_seconds", layer.forward_seconds},
                      {"backward_seconds", layer.backward_seconds},
                      {"activation_bytes", layer.activation_bytes}});
  }
  try {
    const std::string name = Json(workload.name).dump();
    const std::string device =
        workload.device.empty() ? "" : fmt::format("  \"device\": {},\n", Json(workload.device).dump());
    std::string text = fmt::format(
        "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"name\": {},\n{}  \"update_seconds\": {},\n"
        "  \"buffer_bytes\": {},\n  \"buffers\": {},\n  \"tensors\": {},\n  \"layers\": {}\n}}\n",
        kFormat.name, kFormat.version, name, device, Json(workload.update_seconds).dump(),
        workload.buffer_bytes, workload.buffers, lines_of(tensors), lines_of(layers));
    require_readable_names(workload);  // that are UTF-8, as is known by now
    return text;
  } catch (const Json::type_error&) {
    throw ConfigError(fmt::format("a name in workload '{}' is not UTF-8: rename it", workload.name));
  }
}

void write_workload(const Workload& workload, const std::string& path) {
  os::write_file_atomically(path, to_json(workload));
}

}  // namespace dear
