#include "dear/predict/tune/cache.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"

namespace dear::tune {
namespace {

constexpr JsonFormat kFormat{.name = "dear-tuning-cache", .kind = "tuning cache"};
constexpr const char* kOldChunkBytes = "planned_piece_bytes";  // in files of earlier releases

Learned::Measured measured_in(const JsonField& field) {
  field.expect_members({"candidate", "seconds"});
  const JsonField seconds = field.member("seconds");
  constexpr double kMostSeconds = 1e6;  // whose squares a tuner adds up
  if (!(seconds.number() > 0 && seconds.number() <= kMostSeconds))
    seconds.fail(fmt::format("expected a number above 0, up to {:g}", kMostSeconds));
  return {.candidate = field.member("candidate").text(), .seconds = seconds.number()};
}

Learned learned_in(const JsonField& job) {
  Learned learned{.choice = job.member("choice").text(), .measured = {}, .planned = {}};
  std::set<std::string> candidates;  // each is measured once: a tuner would try all that is said here anew
  for (const JsonField& measured : job.member("measured").elements()) {
    learned.measured.push_back(measured_in(measured));
    if (!candidates.insert(learned.measured.back().candidate).second)
      measured.member("candidate").fail("stands here twice: leave one out");
  }
  for (const JsonField& bucket : job.member("planned").elements()) {
    std::vector<std::string>& names = learned.planned.emplace_back();
    for (const JsonField& name : bucket.elements()) names.push_back(name.text());
  }
  const char* const chunk_bytes = job.has(kOldChunkBytes) ? kOldChunkBytes : "planned_chunk_bytes";
  if (!job.has(chunk_bytes)) return learned;
  const JsonField chunks = job.member(chunk_bytes);
  for (const JsonField& bytes : chunks.elements())
    learned.planned_chunk_bytes.push_back(bytes.integer(0, std::numeric_limits<std::int64_t>::max()));
  if (!learned.planned_chunk_bytes.empty() && learned.planned_chunk_bytes.size() != learned.planned.size())
    chunks.fail("expected as many numbers as there are planned buckets, or none");
  return learned;
}

Json json_of(const std::string& key, const Learned& learned) {
  Json measured = Json::array();
  for (const Learned::Measured& one : learned.measured)
    measured.push_back({{"candidate", one.candidate}, {"seconds", one.seconds}});
  Json json{{"key", key}, {"choice", learned.choice}, {"measured", measured}, {"planned", learned.planned}};
  if (!learned.planned_chunk_bytes.empty()) json["planned_chunk_bytes"] = learned.planned_chunk_bytes;
  return json;
}

}  // namespace

Cache Cache::read(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return {};
  return parse(os::read_file(path), path);
}

Cache Cache::parse(std::string_view text, const std::string& source) {
  const Json document = parse_json_file(text, source, kFormat);
  const JsonField root(document, source);
  root.expect_members({"format", "version", "jobs"});
  Cache cache;
  for (const JsonField& job : root.member("jobs").elements()) {
    job.expect_members({"key", "choice", "measured", "planned"}, {"planned_chunk_bytes", kOldChunkBytes});
    if (cache.find(job.member("key").text()) != nullptr)
      job.member("key").fail("another job has it, too: leave one out");
    cache.put(job.member("key").text(), learned_in(job));
  }
  return cache;
}

const Learned* Cache::find(std::string_view key) const {
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& job) { return job.first == key; });
  return found == jobs_.end() ? nullptr : &found->second;
}

void Cache::put(const std::string& key, Learned learned) {
  const auto found =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& job) { return job.first == key; });
  if (found == jobs_.end()) {
    jobs_.emplace_back(key, std::move(learned));
  } else {
    found->second = std::move(learned);
  }
}

std::string Cache::to_json() const {
  Json jobs = Json::array();
  for (const auto& [key, learned] : jobs_) jobs.push_back(json_of(key, learned));
  try {
    return Json{{"format", kFormat.name}, {"version", kFormat.version}, {"jobs", jobs}}.dump(1) + "\n";
  } catch (const Json::type_error&) {
    throw ConfigError(
        "a name of a tensor or a network is not UTF-8 and cannot stand in a tuning cache: rename it");
  }
}

void Cache::write(const std::string& path) const { os::write_file_atomically(path, to_json()); }

}  // namespace dear::tune
