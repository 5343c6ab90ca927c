#pragma once

#include <string>
#include <string_view>

#include "dear/workload/layers/workload.h"

// Workload files: JSON, versioned.
//   {"format": "dear-workload", "version": 4, "name": "...", "device": "a100", "update_seconds": 0.001,
//    "buffer_bytes": 0, "buffers": 0,
//    "tensors": [{"name": "...", "elements": 4096, "dtype": "fp32"}, ...],
//    "layers": [{"name": "...", "tensors": [0, 1], "forward_seconds": 0.1, "backward_seconds": 0.2,
//                "activation_bytes": 65536}, ...]}
// Times are seconds on one rank; "tensors" of a layer are indices into the file's tensors; layers stand in
// forward order. "device", "buffer_bytes", "buffers" and "activation_bytes" (workload.h) may be missing,
// which says that the device is not known, and 0; every other field is required and no other is allowed.
// Older versions are still read: 3 has no "buffers", 2 no "device" either, 1 none of the four.
namespace dear {

// ConfigError "FILE: layers[3].forward_seconds: expected a number, found a string" (with the line for a
// syntax error); also for two tensors of one name, which is not written either.
Workload read_workload(const std::string& path);
Workload parse_workload(std::string_view json, const std::string& name_of_source);

// Written to a temporary file beside it and renamed: a reader never sees half a file. ConfigError when it
// cannot be.
void write_workload(const Workload& workload, const std::string& path);
std::string to_json(const Workload& workload);

}  // namespace dear
