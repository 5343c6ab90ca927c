#include "dear/platform/cluster/pair_cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

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

// Rates beyond these would make times that overflow, and are none that a machine has.
constexpr double kMostRate = 1e18, kMostLatency = 1e6;
bool is_rate(double value) { return value >= 1 && value <= kMostRate; }

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
  if (!is_rate(device.flops_per_second))
    throw ConfigError(fmt::format("device '{}' computes {} operations a second: give a number from 1 to 1e18",
                                  printable(device.name), device.flops_per_second));
  if (device.memory_bytes <= 0)
    throw ConfigError(fmt::format("device '{}' has {} bytes of memory: give a number above 0",
                                  printable(device.name), device.memory_bytes));
  if (device.top_k_elements_per_second != 0 && !is_rate(device.top_k_elements_per_second))
    throw ConfigError(
        fmt::format("device '{}' finds the largest of {} elements a second: give a number from 1 to 1e18, or "
                    "0 for no time",
                    printable(device.name), device.top_k_elements_per_second));
}

void check_wire(const SharedWire& wire, int devices) {
  if (!is_rate(wire.bytes_per_second))
    throw ConfigError(fmt::format("a shared wire carries {} bytes a second: give a number from 1 to 1e18",
                                  wire.bytes_per_second));
  if (wire.links.empty()) throw ConfigError("a shared wire has no links: name those that share it");
  std::set<std::pair<int, int>> links;
  for (const auto& [from, to] : wire.links) {
    if (std::min(from, to) < 0 || std::max(from, to) >= devices || from == to)
      throw ConfigError(
          fmt::format("a shared wire has a link from device {} to {}, and there are {}: give links of two of "
                      "them",
                      from, to, devices));
    if (!links.emplace(from, to).second)
      throw ConfigError(
          fmt::format("a shared wire has the link from device {} to {} twice: leave one out", from, to));
  }
}

std::vector<SharedWire> read_wires(const JsonField& field, const std::vector<PairDevice>& devices) {
  std::vector<SharedWire> wires;
  const auto find = [&](const JsonField& name) {
    const auto found = std::find_if(devices.begin(), devices.end(),
                                    [&](const PairDevice& one) { return one.name == name.text(); });
    if (found == devices.end()) name.fail("there is no device of this name: name one of the list");
    return static_cast<int>(found - devices.begin());
  };
  for (const JsonField& one : field.elements()) {
    one.expect_members({"bytes_per_second", "links"});
    wires.push_back({.bytes_per_second = one.member("bytes_per_second").number(), .links = {}});
    for (const JsonField& link : one.member("links").elements()) {
      const std::vector<JsonField> ends = link.elements();
      if (ends.size() != 2) link.fail("a link is a pair of devices, the sender first");
      wires.back().links.emplace_back(find(ends[0]), find(ends[1]));
    }
  }
  return wires;
}

std::string text_of(const std::vector<SharedWire>& wires, const std::vector<PairDevice>& devices) {
  Json list = Json::array();
  for (const SharedWire& wire : wires) {
    Json links = Json::array();
    for (const auto& [from, to] : wire.links)
      links.push_back(Json::array({devices[index_of(from)].name, devices[index_of(to)].name}));
    list.push_back({{"bytes_per_second", wire.bytes_per_second}, {"links", links}});
  }
  return list.dump();
}

Json to_value(const PairDevice& device) {
  Json value{{"name", device.name},
             {"flops_per_second", device.flops_per_second},
             {"memory_bytes", device.memory_bytes}};
  if (device.top_k_elements_per_second != 0)
    value["top_k_elements_per_second"] = device.top_k_elements_per_second;
  return value;
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
      if (from == to ? rate != 0 : !is_rate(rate))
        throw ConfigError(fmt::format("the link from '{}' to '{}' carries {} bytes a second: give {}",
                                      cluster.devices[from].name, cluster.devices[to].name, rate,
                                      from == to ? "0, for nothing travels" : "a number from 1 to 1e18"));
      if (from == to ? latency != 0 : !(latency >= 0 && latency <= kMostLatency))
        throw ConfigError(fmt::format("the link from '{}' to '{}' has a latency of {} s: give {}",
                                      cluster.devices[from].name, cluster.devices[to].name, latency,
                                      from == to ? "0, for nothing travels" : "a number from 0 to 1e6"));
    }
  }
  for (const SharedWire& wire : cluster.shared_wires) check_wire(wire, static_cast<int>(devices));
}

PairCluster part_of(const PairCluster& cluster, const std::vector<int>& devices) {
  PairCluster part{.name = cluster.name};
  std::map<int, int> places;
  for (const int device : devices) {
    places.emplace(device, static_cast<int>(places.size()));
    part.devices.push_back(cluster.devices.at(index_of(device)));
    std::vector<double>&bandwidths = part.bytes_per_second.emplace_back(),
    &latencies = part.latency_seconds.emplace_back();
    for (const int to : devices) {
      bandwidths.push_back(cluster.bytes_per_second[index_of(device)].at(index_of(to)));
      latencies.push_back(cluster.latency_seconds[index_of(device)].at(index_of(to)));
    }
  }
  for (const SharedWire& wire : cluster.shared_wires) {
    SharedWire of_part{.bytes_per_second = wire.bytes_per_second};
    for (const auto& [from, to] : wire.links)
      if (places.contains(from) && places.contains(to)) of_part.links.emplace_back(places[from], places[to]);
    if (!of_part.links.empty()) part.shared_wires.push_back(std::move(of_part));
  }
  return part;
}

PairCluster parse_pair_cluster(std::string_view json, const std::string& name_of_source) {
  const Json document = parse_json_file(json, name_of_source, kPairFormat);
  const JsonField root(document, name_of_source);
  root.expect_members({"format", "version", "name", "devices", "bytes_per_second", "latency_seconds"},
                      {"shared_wires"});
  PairCluster cluster{.name = root.member("name").text(),
                      .devices = {},
                      .bytes_per_second = read_matrix(root.member("bytes_per_second")),
                      .latency_seconds = read_matrix(root.member("latency_seconds"))};
  for (const JsonField& device : root.member("devices").elements()) {
    device.expect_members({"name", "flops_per_second", "memory_bytes"}, {"top_k_elements_per_second"});
    cluster.devices.push_back({.name = device.member("name").text(),
                               .flops_per_second = device.member("flops_per_second").number(),
                               .memory_bytes = device.member("memory_bytes").integer()});
    if (device.has("top_k_elements_per_second"))
      cluster.devices.back().top_k_elements_per_second = device.member("top_k_elements_per_second").number();
  }
  if (root.has("shared_wires"))
    cluster.shared_wires = read_wires(root.member("shared_wires"), cluster.devices);
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
      devices += (devices.empty() ? "\n    " : ",\n    ") + to_value(device).dump();
    const std::string wires =
        cluster.shared_wires.empty()
            ? ""
            : ",\n  \"shared_wires\": " + text_of(cluster.shared_wires, cluster.devices);
    return fmt::format(
        "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"name\": {},\n  \"devices\": [{}\n  ],\n"
        "  \"bytes_per_second\": {},\n  \"latency_seconds\": {}{}\n}}\n",
        kPairFormat.name, kPairFormat.version, Json(cluster.name).dump(), devices,
        rows_of(cluster.bytes_per_second), rows_of(cluster.latency_seconds), wires);
  } catch (const Json::type_error&) {
    throw ConfigError("a name in the description of a cluster is not UTF-8: rename it");
  }
}

void write_pair_cluster(const PairCluster& cluster, const std::string& path) {
  os::write_file_atomically(path, to_json(cluster));
}

}  // namespace dear
