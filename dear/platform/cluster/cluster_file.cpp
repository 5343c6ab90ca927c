#include "dear/platform/cluster/cluster_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear {
namespace {

constexpr JsonFormat kFormat = {.name = "dear-cluster", .version = 2, .oldest = 1, .kind = "cluster file"};
constexpr std::int64_t kMost = 1 << 30;  // ranks, members and links

int read_count(const JsonField& field, std::int64_t least = 1) {
  return static_cast<int>(field.integer(least, kMost));
}

Link read_link(const JsonField& field) {
  field.expect_members({"alpha_seconds", "beta_seconds_per_byte"});
  return {.alpha_seconds = field.member("alpha_seconds").number_from_0(),
          .beta_seconds_per_byte = field.member("beta_seconds_per_byte").number_from_0()};
}

Dimension read_dimension(const JsonField& field, std::int64_t ranks_of_member) {
  field.expect_members({"name", "size", "link"}, {"wiring", "links", "oversubscription", "beside"});
  Dimension dimension{.name = field.member("name").text(),
                      .size = read_count(field.member("size")),
                      .link = read_link(field.member("link"))};
  if (field.has("wiring")) {
    const JsonField wiring = field.member("wiring");
    try {
      dimension.wiring = find_wiring(wiring.text());
    } catch (const ConfigError& error) {
      wiring.fail(error.what());
    }
  }
  if (field.has("beside")) dimension.beside = field.member("beside").boolean();
  if (dimension.beside) dimension.links = static_cast<int>(std::min(ranks_of_member, kMost));
  if (field.has("links")) dimension.links = read_count(field.member("links"));
  if (field.has("oversubscription")) {
    dimension.oversubscription = field.member("oversubscription").number_from_0();
  }
  return dimension;
}

FitRecord read_fit(const JsonField& field) {
  field.expect_members(
      {"backend", "operation", "dtype", "model", "rms_residual", "worst_residual", "samples"});
  FitRecord fit{.backend = field.member("backend").text(),
                .operation = field.member("operation").text(),
                .dtype = field.member("dtype").text(),
                .model = field.member("model").text(),
                .rms_residual = field.member("rms_residual").number_from_0(),
                .worst_residual = field.member("worst_residual").number_from_0()};
  for (const JsonField& sample : field.member("samples").elements()) {
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

Cluster read_flat(const JsonField& root) {
  root.expect_members({"format", "version", "name", "ranks", "link"}, {"fit"});
  return flat_cluster({.name = root.member("name").text(), .link = read_link(root.member("link"))},
                      read_count(root.member("ranks")));
}

Cluster read_dimensions(const JsonField& root) {
  root.expect_members({"format", "version", "name", "dimensions"},
                      {"device", "stragglers", "interference", "software", "fit"});
  Cluster cluster{.name = root.member("name").text(), .dimensions = {}};
  std::int64_t ranks = 1;
  std::map<std::string, std::size_t> found;  // tables, charts and traces know dimensions by their names
  for (const JsonField& dimension : root.member("dimensions").elements()) {
    const std::string name = dimension.member("name").text();
    if (const auto [other, is_new] = found.emplace(name, found.size()); !is_new)
      dimension.member("name").fail(
          fmt::format("'{}' is the name of dimensions[{}], too: give each a name of its own",
                      printable(shortened(name, 100)), other->second));
    cluster.dimensions.push_back(read_dimension(dimension, ranks));
    ranks = std::min(ranks * cluster.dimensions.back().size, kMost);
  }
  if (root.has("device")) cluster.device = root.member("device").text();
  if (root.has("stragglers")) {
    for (const JsonField& straggler : root.member("stragglers").elements()) {
      straggler.expect_members({"rank", "slowdown"});
      cluster.stragglers.push_back({.rank = read_count(straggler.member("rank"), 0),
                                    .slowdown = straggler.member("slowdown").number_from_0()});
    }
  }
  if (root.has("interference")) {
    const JsonField interference = root.member("interference");
    interference.expect_members({"communication", "computation"});
    cluster.interference = {.communication = interference.member("communication").number_from_0(),
                            .computation = interference.member("computation").number_from_0()};
  }
  if (root.has("software")) {
    const JsonField software = root.member("software");
    software.expect_members({"launch_seconds", "hold_seconds"}, {"buffer_seconds"});
    cluster.software = {.launch_seconds = software.member("launch_seconds").number_from_0(),
                        .hold_seconds = software.member("hold_seconds").number_from_0()};
    if (software.has("buffer_seconds"))
      cluster.software.buffer_seconds = software.member("buffer_seconds").number_from_0();
  }
  return cluster;
}

}  // namespace

Cluster parse_cluster(std::string_view json, const std::string& name_of_source) {
  const Json document = parse_json_file(json, name_of_source, kFormat);
  const JsonField root(document, name_of_source);
  Cluster cluster = root.member("version").integer() == 1 ? read_flat(root) : read_dimensions(root);
  if (root.has("fit")) cluster.fit = read_fit(root.member("fit"));
  try {
    validate(cluster);
  } catch (const ConfigError& error) {
    root.fail(error.what());
  }
  return cluster;
}

Cluster read_cluster(const std::string& path) { return parse_cluster(os::read_file(path), path); }

std::string to_json(const Cluster& cluster) {
  Json json{{"format", kFormat.name}, {"version", kFormat.version}, {"name", cluster.name}};
  if (!cluster.device.empty()) json["device"] = cluster.device;
  json["dimensions"] = Json::array();
  for (const Dimension& dimension : cluster.dimensions) {
    json["dimensions"].push_back({{"name", dimension.name},
                                  {"size", dimension.size},
                                  {"wiring", name_of(dimension.wiring)},
                                  {"links", dimension.links},
                                  {"oversubscription", dimension.oversubscription},
                                  {"link",
                                   {{"alpha_seconds", dimension.link.alpha_seconds},
                                    {"beta_seconds_per_byte", dimension.link.beta_seconds_per_byte}}}});
    if (dimension.beside) json["dimensions"].back()["beside"] = true;
  }
  for (const Straggler& straggler : cluster.stragglers) {
    json["stragglers"].push_back({{"rank", straggler.rank}, {"slowdown", straggler.slowdown}});
  }
  if (cluster.interference != Interference{})
    json["interference"] = {{"communication", cluster.interference.communication},
                            {"computation", cluster.interference.computation}};
  if (cluster.software != Software{})
    json["software"] = {{"launch_seconds", cluster.software.launch_seconds},
                        {"hold_seconds", cluster.software.hold_seconds},
                        {"buffer_seconds", cluster.software.buffer_seconds}};
  if (cluster.fit) json["fit"] = to_value(*cluster.fit);
  try {
    return json.dump(2) + "\n";
  } catch (const Json::type_error&) {
    throw ConfigError("a name in the description of a cluster is not UTF-8: rename it");
  }
}

void write_cluster(const Cluster& cluster, const std::string& path) {
  os::write_file_atomically(path, to_json(cluster));
}

bool names_file(std::string_view text) {
  std::error_code ignored;
  return text.ends_with(".json") || std::filesystem::is_regular_file(text, ignored);
}

}  // namespace dear
