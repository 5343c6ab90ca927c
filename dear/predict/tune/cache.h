#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// A file that keeps what tuning learned from one run to the next.
namespace dear::tune {

// Holds what tuning learned of one job on one set of machines. Candidates are identified by name.
struct Learned {
  struct Measured {
    std::string candidate;
    double seconds = 0;  // of an iteration
  };
  std::string choice;  // the candidate that won
  std::vector<Measured> measured;
  // The buckets of the candidate "planned", as names of tensors; empty without that candidate.
  std::vector<std::vector<std::string>> planned;
  // By planned bucket, the bytes of its chunks, 0 for a bucket that travels whole; empty where all do.
  std::vector<std::int64_t> planned_chunk_bytes{};
};

// A JSON file {"format": "dear-tuning-cache", "version": 1, "jobs": [{key, choice, measured: [{candidate,
// seconds}], planned, planned_chunk_bytes}]} for any number of jobs. Only jobs with chunks have the last
// member.
class Cache {
 public:
  // Reads the file; the cache is empty where no file exists. ConfigError "FILE: jobs[2].measured[0].seconds:
  // ..." for a file that is no cache or cannot be read.
  static Cache read(const std::string& path);
  static Cache parse(std::string_view text, const std::string& source);

  [[nodiscard]] const Learned* find(std::string_view key) const;  // null for a job that is not there
  void put(const std::string& key, Learned learned);              // replaces what the job had

  [[nodiscard]] std::string to_json() const;
  // Replaces the file atomically; ConfigError when it cannot be written.
  void write(const std::string& path) const;

 private:
  std::vector<std::pair<std::string, Learned>> jobs_;
};

}  // namespace dear::tune
