#include "dear/platform/cluster/pair_cluster.h"

#include <cmath>
#include <set>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/printable.h"

namespace dear {
namespace {

constexpr JsonFormat kPairFormat = {
    .name = "dear-pair-cluster", .version = 1, .kind = "file of a cluster with a link for each pair"};

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

void require_square(const PairCluster& cluster, const PairCluster::Matrix& matrix, std::string_view name) {
  const std::size_t devices = cluster.devices.size();
  if (matrix.size() != devices)
    throw ConfigError(
        fmt::format("{} has {} rows for {} devices: give each device a row", name, matrix.size(), devices));
  for (std::size_t from = 0; from < devices; ++from)
    if (matrix[from].size() != devices)
      throw ConfigError(
          fmt::format("the row of {} of device '{}' has {} entries for {} devices: give each "
                      "device one",
                      name, cluster.devices[from].name, matrix[from].size(), devices));
}

void check_device(const PairDevice& device) {
  if (device.name.empty()) throw ConfigError("a device has no name: give each one of its own");
  if (!is_positive(device.flops_per_second))
    throw ConfigError(fmt::format("device '{}' computes {} operations a second: give a finite number above 0",
                                  printable(device.name), device.flops_per_second));
  if (device.memory_bytes <= 0)
    throw ConfigError(fmt::format("device '{}' has {} bytes of memory: give a number above 0",
                                  printable(device.name), device.memory_bytes));
}

PairCluster::Matrix read_matrix(const JsonField& field) {
  PairCluster::Matrix matrix;
  for (const JsonField& row : field.elements()) {
    const std::size_t from = matrix.size();
    matrix.emplace_back();
    for (const JsonField& entry : row.elements()) {
      const bool on_diagonal = matrix.back().size() == from;
      if (on_diagonal && !entry.is_null())
        entry.fail("a device has no link to itself: write null on the diagonal");
      matrix.back().push_back(on_diagonal ? 0 : entry.number());
    }
  }
  return matrix;
}

// One row a line, so that a reader sees the matrix.
std::string rows_of(const PairCluster::Matrix& matrix) {
  std::string text;
  for (std::size_t from = 0; from < matrix.size(); ++from) {
    Json row = Json::array();
    for (std::size_t to = 0; to < matrix.size(); ++to)
      row.push_back(from == to ? Json(nullptr) : Json(matrix[from][to]));
    text += (from == 0 ? "\n    " : ",\n    ") + row.dump();
  }
  return "[" + text + "\n  ]";
}

}  // namespace

double PairCluster::transfer_seconds(int from, int to, double bytes) const {
  return from == to ? 0 : bytes / bytes_per_second[index_of(from)][index_of(to)];
}

void validate(const PairCluster& cluster) {
  if (cluster.devices.empty()) throw ConfigError("a cluster needs a device: it has none");
  std::set<std::string_view> names;
  for (const PairDevice& device : cluster.devices) {
    check_device(device);
    if (!names.insert(device.name).second)
      throw ConfigError(
          fmt::format("two devices are named '{}': give each a name of its own", printable(device.name)));
  }
  require_square(cluster, cluster.bytes_per_second, "bytes_per_second");
  require_square(cluster, cluster.latency_seconds, "latency_seconds");
  const std::size_t devices = cluster.devices.size();
  for (std::size_t from = 0; from < devices; ++from) {
    for (std::size_t to = 0; to < devices; ++to) {
      const double rate = cluster.bytes_per_second[from][to], latency = cluster.latency_seconds[from][to];
      if (from == to ? rate != 0 : !is_positive(rate))
        throw ConfigError(fmt::format("the link from '{}' to '{}' carries {} bytes a second: give {}",
                                      cluster.devices[from].name, cluster.devices[to].name, rate,
                                      from == to ? "0, for nothing travels" : "a finite number above 0"));
      if (from == to ? latency != 0 : !(std::isfinite(latency) && latency >= 0))
        throw ConfigError(fmt::format("the link from '{}' to '{}' has a latency of {} s: give {}",
                                      cluster.devices[from].name, cluster.devices[to].name, latency,
                                      from == to ? "0, for nothing travels" : "a finite number, 0 or more"));
    }
  }
}

PairCluster parse_pair_cluster(std::string_view json, const std::string& name_of_source) {
  const Json document = parse_json_file(json, name_of_source, kPairFormat);
  const JsonField root(document, name_of_source);
  root.expect_members({"format", "version", "name", "devices", "bytes_per_second", "latency_seconds"});
  PairCluster cluster{.name = root.member("name").text(),
                      .devices = {},
                      .bytes_per_second = read_matrix(root.member("bytes_per_second")),
                      .latency_seconds = read_matrix(root.member("latency_seconds"))};
  for (const JsonField& device : root.member("devices").elements()) {
    device.expect_members({"name", "flops_per_second", "memory_bytes"});
    cluster.devices.push_back({.name = device.member("name").text(),
                               .flops_per_second = device.member("flops_per_second").number(),
                               .memory_bytes = device.member("memory_bytes").integer()});
  }
  try {
    validate(cluster);
  } catch (const ConfigError& error) {
    root.fail(error.what());
  }
  return cluster;
}

PairCluster read_pair_cluster(const std::string& path) {
  return parse_pair_cluster(os::read_file(path), path);
}

std::string to_json(const PairCluster& cluster) {
  validate(cluster);
  try {
    std::string devices;
    for (const PairDevice& device : cluster.devices)
      devices +=
          (devices.empty() ? "\n    " : ",\n    ") + Json{{"name", device.name},
                                                          {"flops_per_second", device.flops_per_second},
                                                          {"memory_bytes", device.memory_bytes}}
                                                         .dump();
    return fmt::format(
        "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"name\": {},\n  \"devices\": [{}\n  ],\n"
        "  \"bytes_per_second\": {},\n  \"latency_seconds\": {}\n}}\n",
        kPairFormat.name, kPairFormat.version, Json(cluster.name).dump(), devices,
        rows_of(cluster.bytes_per_second), rows_of(cluster.latency_seconds));
  } catch (const Json::type_error&) {
    throw ConfigError("a name in the description of a cluster is not UTF-8: rename it");
  }
}

void write_pair_cluster(const PairCluster& cluster, const std::string& path) {
  os::write_file_atomically(path, to_json(cluster));
}

}  // namespace dear
