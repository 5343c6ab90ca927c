#include "dear/cluster/cluster_file.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "dear/base/atomic_file.h"
#include "dear/base/error.h"

namespace dear {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "dear-cluster";
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostRanks = 1 << 20;

// A value in the file and the way to it, for messages: "fit.samples[3].bytes".
class Field {
 public:
  Field(const Json& value, std::string source, std::string path = "")
      : value_(&value), source_(std::move(source)), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& why) const {
    throw ConfigError(path_.empty() ? fmt::format("{}: {}", source_, why)
                                    : fmt::format("{}: {}: {}", source_, path_, why));
  }
  [[noreturn]] void refuse(std::string_view expected) const {
    fail(fmt::format("expected {}, found {}", expected,
                     value_->is_structured() ? std::string(value_->type_name()) : value_->dump()));
  }

  // These members and no others; those of `optional` may be missing.
  void expect_members(const std::vector<std::string_view>& required,
                      const std::vector<std::string_view>& optional = {}) const {
    if (!value_->is_object()) refuse("an object");
    for (const std::string_view name : required) {
      if (!value_->contains(name)) member_path(name).fail("missing: add it");
    }
    const auto holds = [](const std::vector<std::string_view>& names, const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    for (const auto& item : value_->items()) {
      if (!holds(required, item.key()) && !holds(optional, item.key())) {
        member_path(item.key())
            .fail(fmt::format("unknown: remove it; there are {}{}{}", fmt::join(required, ", "),
                              optional.empty() ? "" : ", ", fmt::join(optional, ", ")));
      }
    }
  }
  [[nodiscard]] bool has(std::string_view name) const { return value_->contains(name); }
  [[nodiscard]] Field member(std::string_view name) const {
    return {value_->at(name), source_, member_path(name).path_};
  }
  [[nodiscard]] std::vector<Field> elements() const {
    if (!value_->is_array()) refuse("an array");
    std::vector<Field> fields;
    for (const Json& element : *value_) {
      fields.emplace_back(element, source_, fmt::format("{}[{}]", path_, fields.size()));
    }
    return fields;
  }

  [[nodiscard]] std::string text() const {
    if (!value_->is_string()) refuse("a string");
    return value_->get<std::string>();
  }
  [[nodiscard]] double number_from_0() const {
    if (!value_->is_number() || !std::isfinite(value_->get<double>()) || value_->get<double>() < 0) {
      refuse("a number, 0 or more");
    }
    return value_->get<double>();
  }
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const {
    const bool fits = value_->is_number_integer() && value_->get<double>() < 0x1p62 &&
                      value_->get<std::int64_t>() >= least && value_->get<std::int64_t>() <= most;
    if (!fits) refuse(fmt::format("a whole number from {} to {}", least, most));
    return value_->get<std::int64_t>();
  }

 private:
  [[nodiscard]] Field member_path(std::string_view name) const {
    return {*value_, source_, path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name)};
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
    root.fail(
        fmt::format("not a cluster file: it must be a JSON object with \"format\": \"{}\", as `dear bench "
                    "collective --cluster` writes it",
                    kFormat));
  }
  if (!json.contains("version")) root.fail(fmt::format("version: missing: add \"version\": {}", kVersion));
  if (json["version"] != kVersion) {
    root.member("version").fail(
        fmt::format("found {}, but this build reads version {}: write the file anew with this build, or use "
                    "the build that wrote it",
                    json["version"].dump(), kVersion));
  }
}

FitRecord read_fit(const Field& field) {
  field.expect_members(
      {"backend", "operation", "dtype", "model", "rms_residual", "worst_residual", "samples"});
  FitRecord fit{.backend = field.member("backend").text(),
                .operation = field.member("operation").text(),
                .dtype = field.member("dtype").text(),
                .model = field.member("model").text(),
                .rms_residual = field.member("rms_residual").number_from_0(),
                .worst_residual = field.member("worst_residual").number_from_0()};
  for (const Field& sample : field.member("samples").elements()) {
    sample.expect_members({"bytes", "seconds", "modelled_seconds"});
    fit.samples.push_back({.bytes = sample.member("bytes").integer(0, std::int64_t{1} << 50),
                           .seconds = sample.member("seconds").number_from_0(),
                           .modelled_seconds = sample.member("modelled_seconds").number_from_0()});
  }
  return fit;
}

Json to_value(const FitRecord& fit) {
  Json samples = Json::array();
  for (const FitRecord::Sample& sample : fit.samples) {
    samples.push_back({{"bytes", sample.bytes},
                       {"seconds", sample.seconds},
                       {"modelled_seconds", sample.modelled_seconds}});
  }
  return {{"backend", fit.backend},
          {"operation", fit.operation},
          {"dtype", fit.dtype},
          {"model", fit.model},
          {"rms_residual", fit.rms_residual},
          {"worst_residual", fit.worst_residual},
          {"samples", std::move(samples)}};
}

}  // namespace

Cluster parse_cluster(std::string_view json, const std::string& name_of_source) {
  const Json document = parse_json(json, name_of_source);
  const Field root(document, name_of_source);
  check_format(root, document);
  root.expect_members({"format", "version", "name", "ranks", "link"}, {"fit"});
  const Field link = root.member("link");
  link.expect_members({"alpha_seconds", "beta_seconds_per_byte"});
  Cluster cluster{.name = root.member("name").text(),
                  .ranks = static_cast<int>(root.member("ranks").integer(1, kMostRanks)),
                  .link = {.alpha_seconds = link.member("alpha_seconds").number_from_0(),
                           .beta_seconds_per_byte = link.member("beta_seconds_per_byte").number_from_0()}};
  if (root.has("fit")) cluster.fit = read_fit(root.member("fit"));
  return cluster;
}

Cluster read_cluster(const std::string& path) { return parse_cluster(read_file(path), path); }

std::string to_json(const Cluster& cluster) {
  Json json{{"format", kFormat},
            {"version", kVersion},
            {"name", cluster.name},
            {"ranks", cluster.ranks},
            {"link",
             {{"alpha_seconds", cluster.link.alpha_seconds},
              {"beta_seconds_per_byte", cluster.link.beta_seconds_per_byte}}}};
  if (cluster.fit) json["fit"] = to_value(*cluster.fit);
  try {
    return json.dump(2) + "\n";
  } catch (const Json::type_error&) {
    throw ConfigError("a name in the description of a cluster is not UTF-8: rename it");
  }
}

void write_cluster(const Cluster& cluster, const std::string& path) {
  write_file_atomically(path, to_json(cluster));
}

}  // namespace dear
