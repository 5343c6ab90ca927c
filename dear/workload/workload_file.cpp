#include "dear/workload/workload_file.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/atomic_file.h"
#include "dear/base/error.h"

namespace dear {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "dear-workload";
constexpr std::int64_t kVersion = 1;

std::string with_article(std::string_view noun) {
  const bool vowel = noun.starts_with('a') || noun.starts_with('o') || noun.starts_with('i');
  return fmt::format("{} {}", vowel ? "an" : "a", noun);
}

std::string describe(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_number()) return value.dump();
  return with_article(value.type_name());
}

// A value in the file and the way to it, for messages: "layers[3].forward_seconds".
class Field {
 public:
  Field(const Json& value, std::string source) : value_(&value), source_(std::move(source)) {}

  [[noreturn]] void fail(const std::string& why) const {
    throw ConfigError(path_.empty() ? fmt::format("{}: {}", source_, why)
                                    : fmt::format("{}: {}: {}", source_, path_, why));
  }

  // The members of an object: all of these and no others.
  void expect_members(std::initializer_list<std::string_view> names) const {
    if (!value_->is_object()) refuse("object");
    for (const std::string_view name : names) {
      if (!value_->contains(name)) member_path(name).fail("missing: add it");
    }
    for (const auto& item : value_->items()) {
      if (std::find(names.begin(), names.end(), item.key()) == names.end()) {
        member_path(item.key()).fail(fmt::format("unknown: expected only {}", fmt::join(names, ", ")));
      }
    }
  }

  [[nodiscard]] Field member(std::string_view name) const {
    Field field = member_path(name);
    field.value_ = &value_->at(name);
    return field;
  }

  [[nodiscard]] std::vector<Field> elements() const {
    if (!value_->is_array()) refuse("array");
    std::vector<Field> fields;
    fields.reserve(value_->size());
    for (const Json& element : *value_) {
      fields.emplace_back(element, source_);
      fields.back().path_ = fmt::format("{}[{}]", path_, fields.size() - 1);
    }
    return fields;
  }

  [[nodiscard]] std::string text() const {
    if (!value_->is_string()) refuse("string");
    return value_->get<std::string>();
  }
  [[nodiscard]] double number() const {
    if (!value_->is_number()) refuse("number");
    return value_->get<double>();
  }
  [[nodiscard]] std::int64_t integer() const {
    const bool beyond =
        value_->is_number_unsigned() &&
        value_->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    if (!value_->is_number_integer() || beyond) refuse("integer");
    return value_->get<std::int64_t>();
  }
  [[nodiscard]] std::uint32_t index() const {
    const bool fits = value_->is_number_unsigned() &&
                      value_->get<std::uint64_t>() <= std::numeric_limits<std::uint32_t>::max();
    if (!fits) refuse("index from 0");
    return value_->get<std::uint32_t>();
  }

 private:
  [[noreturn]] void refuse(std::string_view expected) const {
    fail(fmt::format("expected {}, found {}", with_article(expected), describe(*value_)));
  }
  [[nodiscard]] Field member_path(std::string_view name) const {
    Field field = *this;
    field.path_ = path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
    return field;
  }

  const Json* value_;
  std::string source_;
  std::string path_;
};

Json parse_json(std::string_view text, const std::string& source) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 3, column 5: ..."
    const std::string_view message = error.what();
    const std::size_t tag_end = message.find("] ");
    throw ConfigError(fmt::format("{}: {}: correct the JSON", source,
                                  tag_end == std::string_view::npos ? message : message.substr(tag_end + 2)));
  }
}

void check_format(const Field& root, const Json& json) {
  if (!json.is_object() || !json.contains("format") || json["format"] != kFormat) {
    root.fail(fmt::format("not a workload file: it must be a JSON object with \"format\": \"{}\"", kFormat));
  }
  if (!json.contains("version")) root.fail(fmt::format("version: missing: add \"version\": {}", kVersion));
  if (const std::int64_t version = root.member("version").integer(); version != kVersion) {
    root.member("version").fail(
        fmt::format("found {}, but this build reads version {}: write the file anew with this "
                    "build, or use the build that wrote it",
                    version, kVersion));
  }
}

Tensor read_tensor(const Field& field) {
  field.expect_members({"name", "elements", "dtype"});
  Tensor tensor{.name = field.member("name").text(), .elements = field.member("elements").integer()};
  const Field dtype = field.member("dtype");
  const std::string name = dtype.text();
  try {
    tensor.dtype = parse_dtype(name);
  } catch (const ConfigError& error) {
    dtype.fail(error.what());
  }
  return tensor;
}

Layer read_layer(const Field& field) {
  field.expect_members({"name", "tensors", "forward_seconds", "backward_seconds"});
  Layer layer;
  layer.name = field.member("name").text();
  for (const Field& index : field.member("tensors").elements()) layer.tensors.push_back(index.index());
  layer.forward_seconds = field.member("forward_seconds").number();
  layer.backward_seconds = field.member("backward_seconds").number();
  return layer;
}

// One tensor or layer a line: readable, and a change shows as one line.
std::string lines_of(const std::vector<Json>& items) {
  std::string text;
  for (const Json& item : items) text += (text.empty() ? "\n    " : ",\n    ") + item.dump();
  return "[" + text + "\n  ]";
}

}  // namespace

Workload parse_workload(std::string_view json, const std::string& name_of_source) {
  const Json document = parse_json(json, name_of_source);
  const Field root(document, name_of_source);
  check_format(root, document);
  root.expect_members({"format", "version", "name", "update_seconds", "tensors", "layers"});
  Workload workload;
  workload.name = root.member("name").text();
  workload.update_seconds = root.member("update_seconds").number();
  for (const Field& tensor : root.member("tensors").elements())
    workload.tensors.push_back(read_tensor(tensor));
  for (const Field& layer : root.member("layers").elements()) workload.layers.push_back(read_layer(layer));
  try {
    validate(workload);
  } catch (const ConfigError& error) {
    root.fail(error.what());
  }
  return workload;
}

Workload read_workload(const std::string& path) { return parse_workload(read_file(path), path); }

std::string to_json(const Workload& workload) {
  validate(workload);
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
                      {"backward_seconds", layer.backward_seconds}});
  }
  try {
    return fmt::format(
        "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"name\": {},\n  \"update_seconds\": {},\n"
        "  \"tensors\": {},\n  \"layers\": {}\n}}\n",
        kFormat, kVersion, Json(workload.name).dump(), Json(workload.update_seconds).dump(),
        lines_of(tensors), lines_of(layers));
  } catch (const Json::type_error&) {
    throw ConfigError(fmt::format("a name in workload '{}' is not UTF-8: rename it", workload.name));
  }
}

void write_workload(const Workload& workload, const std::string& path) {
  write_file_atomically(path, to_json(workload));
}

}  // namespace dear
