#pragma once

#include <string>
#include <string_view>

#include "dear/schedule/fusion/grouping.h"

// Schedule files: which policy and which buckets to use for a job. JSON, versioned.
//   {"format": "dear-schedule", "version": 3, "model": "resnet-50", "cluster": "10gbe", "ranks": 64,
//    "policy": "dear-eager", "buckets": [["conv1.weight", "bn1.weight"], ["fc.weight"]],
//    "chunk_bytes": [0, 1048576]}
// "model", "cluster" and "ranks" say what it was planned for; nothing is compared with them. "buckets" are
// lists of names of the model's tensors, written in forward order and read in any. "chunk_bytes", in the same
// order, is how much of a bucket may travel at once, 0 for all of it (Bucket::chunk_bytes); it may be
// missing. Every other field is required and no further one is allowed. Files of version 2, where
// it is "piece_bytes", and of version 1, which do not have it, are still read.
namespace dear {

struct ScheduleFile {
  std::string model;
  std::string cluster;
  int ranks = 1;
  std::string policy;  // of policies(), not always one that trains
  ByName buckets;      // of what was read: with the file as source, so group() names it in its messages
};

// ConfigError "FILE: buckets[3][0]: expected a string, found 7" (with the line for a syntax error). Whether
// the buckets are those of a model is what group(workload, buckets) finds out.
ScheduleFile read_schedule_file(const std::string& path);
ScheduleFile parse_schedule_file(std::string_view json, const std::string& name_of_source);

// Atomically; ConfigError when it cannot be written.
void write_schedule_file(const ScheduleFile& file, const std::string& path);
std::string to_json(const ScheduleFile& file);

}  // namespace dear
