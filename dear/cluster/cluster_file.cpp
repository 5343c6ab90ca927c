#include "dear/cluster/cluster_file.h"

#include "dear/base/atomic_file.h"
#include "dear/base/error.h"
#include "dear/document/json_field.h"

namespace dear {
namespace {

constexpr JsonFormat kFormat = {.name = "dear-cluster", .version = 1, .kind = "cluster file"};
constexpr std::int64_t kMostRanks = 1 << 20;

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

}  // namespace

FlatCluster parse_cluster(std::string_view json, const std::string& name_of_source) {
  const Json document = parse_json_file(json, name_of_source, kFormat);
  const JsonField root(document, name_of_source);
  root.expect_members({"format", "version", "name", "ranks", "link"}, {"fit"});
  const JsonField link = root.member("link");
  link.expect_members({"alpha_seconds", "beta_seconds_per_byte"});
  FlatCluster cluster{
      .name = root.member("name").text(),
      .ranks = static_cast<int>(root.member("ranks").integer(1, kMostRanks)),
      .link = {.alpha_seconds = link.member("alpha_seconds").number_from_0(),
               .beta_seconds_per_byte = link.member("beta_seconds_per_byte").number_from_0()}};
  if (root.has("fit")) cluster.fit = read_fit(root.member("fit"));
  return cluster;
}

FlatCluster read_cluster(const std::string& path) { return parse_cluster(read_file(path), path); }

std::string to_json(const FlatCluster& cluster) {
  Json json{{"format", kFormat.name},
            {"version", kFormat.version},
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

void write_cluster(const FlatCluster& cluster, const std::string& path) {
  write_file_atomically(path, to_json(cluster));
}

}  // namespace dear
