#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What tuning learned, kept in a file from one run to the next.
namespace dear::tune {

// Of one job on one set of machines. Candidates go by name.
struct Learned {
  struct Measured {
    std::string candidate;
    double seconds = 0;  // of an iteration
  };
  std::string choice;  // what won
  std::vector<Measured> measured;
  // What is in the buckets of the candidate "planned", which nothing else says: names of tensors. Empty where
  // there was none.
  std::vector<std::vector<std::string>> planned;
  // Of each of them, 0 for one that travels whole; or nothing.
  std::vector<std::int64_t> planned_chunk_bytes{};
};

// A JSON file {"format": "dear-tuning-cache", "version": 1, "jobs": [{key, choice, measured: [{candidate,
// seconds}], planned, planned_chunk_bytes}]}, the last only where some are cut, for any number of jobs.
class Cache {
 public:
  // Empty where there is no file yet. ConfigError "FILE: jobs[2].measured[0].seconds: ..." for one that is no
  // cache, and for one that cannot be read.
  static Cache read(const std::string& path);
  static Cache parse(std::string_view text, const std::string& source);

  [[nodiscard]] const Learned* find(std::string_view key) const;  // null when there is nothing
  void put(const std::string& key, Learned learned);              // in place of what was there

  [[nodiscard]] std::string to_json() const;
  // Atomically; ConfigError when it cannot be written.
  void write(const std::string& path) const;

 private:
  std::vector<std::pair<std::string, Learned>> jobs_;
};

}  // namespace dear::tune
