#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Devices that are far apart: machines of several owners, whose speeds differ and whose links differ by a
// factor of a thousand. A Cluster (cluster.h) cannot say that: its ranks are alike, and its links follow from
// the few dimensions of a grid. Here each ordered pair of devices has a link of its own.
namespace dear {

struct PairDevice {
  std::string name;
  double flops_per_second = 0;  // that training attains, not the peak
  std::int64_t memory_bytes = 0;
  // For a message that travels compressed: the elements a second among which the device finds the largest, or
  // which it puts in their places. 0: in no time.
  double top_k_elements_per_second = 0;
  friend bool operator==(const PairDevice&, const PairDevice&) = default;
};

// A shared wire carries what travels over several links, all of it together at `bytes_per_second`: the card
// of a host, the line of a site. Messages under way at once have fair shares of it.
struct SharedWire {
  double bytes_per_second = 0;
  std::vector<std::pair<int, int>> links;  // ordered pairs of devices
  friend bool operator==(const SharedWire&, const SharedWire&) = default;
};

// A value. Matrices are [from][to] by index into `devices`; the two directions of a pair may differ. Their
// diagonals are 0: nothing travels from a device to itself.
struct PairCluster {
  using Matrix = std::vector<std::vector<double>>;
  std::string name;
  std::vector<PairDevice> devices;
  Matrix bytes_per_second;
  Matrix latency_seconds;
  std::vector<SharedWire> shared_wires{};

  // For how long bytes take the link from one device to another, the latency left out; 0 to itself.
  [[nodiscard]] double transfer_seconds(int from, int to, double bytes) const;
  friend bool operator==(const PairCluster&, const PairCluster&) = default;
};

// ConfigError naming what is wrong: no device, a name that is empty or there twice, a memory that is not
// above 0, a matrix that is not square, a speed or bandwidth that is not from 1 to 1e18 a second, a latency
// that is not from 0 to 1e6 s, a shared wire without links, of a device that there is not, or with a link
// twice.
void validate(const PairCluster& cluster);

// These devices, in this order, with the links between them.
PairCluster part_of(const PairCluster& cluster, const std::vector<int>& devices);

// Files, JSON:
//   {"format": "dear-pair-cluster", "version": 1, "name": "two rooms",
//    "devices": [{"name": "a", "flops_per_second": 1e13, "memory_bytes": 8589934592}, ...],
//    "bytes_per_second": [[null, 1e9], [5e8, null]], "latency_seconds": [[null, 0.001], [0.001, null]]}
// Rows are senders; only the diagonals are null. All of these fields are required. A device may have
// "top_k_elements_per_second", and the cluster
//   "shared_wires": [{"bytes_per_second": 1e6, "links": [["a", "b"], ["c", "b"]]}, ...].
// ConfigError as cluster_file.h.
PairCluster read_pair_cluster(const std::string& path);
PairCluster parse_pair_cluster(std::string_view json, const std::string& name_of_source);
void write_pair_cluster(const PairCluster& cluster, const std::string& path);  // atomically
std::string to_json(const PairCluster& cluster);

}  // namespace dear
