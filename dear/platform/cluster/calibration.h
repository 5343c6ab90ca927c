#pragma once

#include "dear/platform/cluster/cluster.h"

namespace dear {

// What no data sheet says of nodes that share a network card, but iterations measured on them do.
struct Calibration {
  double launch_seconds = 0;         // Software::launch_seconds
  double hold_seconds = 0;           // Software::hold_seconds
  double node_bytes_per_second = 0;  // of a link inside a node, one direction, above 0
  // A byte takes so many times as long inside a node while its ranks compute, at least 1.
  double node_slowdown = 1;
};

// The cluster with these constants. The links inside nodes are slower while ranks compute; between nodes that
// shows, as an interference of communication, as far as they are then the slowest on the way. ConfigError for
// constants that are out of range.
Cluster calibrated(Cluster cluster, const Calibration& calibration);

// Constants of nodes with 4 RTX 2080 Ti on PCIe 3.0, without direct access of one GPU to another: what `dear
// study calibration` fits to half of the published iterations that docs/study/published.json lists. A test of
// the study holds these numbers to its result.
inline constexpr Calibration kRtx2080Ti = {.launch_seconds = 0.79e-3,
                                           .hold_seconds = 0.90e-3,
                                           .node_bytes_per_second = 4.89e9,
                                           .node_slowdown = 1.26};

// Seconds for each buffer that PyTorch's DDP broadcasts, on the same cluster's Ethernet: what `dear study
// paper` fits to one published iteration. A test of the study holds it to that.
inline constexpr double kBufferSecondsOnEthernet = 0.375e-3;

}  // namespace dear
