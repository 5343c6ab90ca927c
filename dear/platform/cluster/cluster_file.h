#pragma once

#include <string>
#include <string_view>

#include "dear/platform/cluster/cluster.h"

// Cluster files: what is known of the machines that a job runs on. JSON, versioned.
//   {"format": "dear-cluster", "version": 2, "name": "two racks", "device": "rtx2080ti",
//    "dimensions": [{"name": "node", "size": 4, "wiring": "switched", "links": 1, "oversubscription": 1,
//                    "link": {"alpha_seconds": 5e-06, "beta_seconds_per_byte": 8e-11}}, ...],
//    "stragglers": [{"rank": 3, "slowdown": 1.5}],
//    "interference": {"communication": 1.3, "computation": 1.1},
//    "software": {"launch_seconds": 0.0009, "hold_seconds": 0.0013, "buffer_seconds": 0.0004},
//    "fit": {"backend": "shm", "operation": "all-reduce", "dtype": "fp32", "model": "ring",
//            "rms_residual": 0.1, "worst_residual": 0.2,
//            "samples": [{"bytes": 4, "seconds": 0.0001, "modelled_seconds": 0.0001}, ...]}}
// The fields are those of Cluster (cluster.h). "name", "dimensions", and of a dimension "name", "size" and
// "link" are required, and so is every field of a link, a straggler, an interference, software and a fit;
// others have the defaults of the structs, and no further one is allowed. A dimension may also say
// "beside": true; then its "links" are as many as a member has ranks, unless it says otherwise.
//
// A file of version 1 has "ranks" and one "link" instead of dimensions: they make one switched dimension.
namespace dear {

// ConfigError "FILE: dimensions[0].link.alpha_seconds: expected a number, 0 or more, found a string" (with
// the line for a syntax error).
Cluster read_cluster(const std::string& path);
Cluster parse_cluster(std::string_view json, const std::string& name_of_source);

// Atomically; ConfigError when it cannot be written.
void write_cluster(const Cluster& cluster, const std::string& path);
std::string to_json(const Cluster& cluster);

// Whether a description can only be meant as a file: there is one of that name, or it ends in ".json".
bool names_file(std::string_view text);

}  // namespace dear
