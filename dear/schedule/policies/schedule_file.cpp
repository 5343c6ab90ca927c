#include "dear/schedule/policies/schedule_file.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/policy.h"

namespace dear {
namespace {

constexpr JsonFormat kFormat = {.name = "dear-schedule", .version = 3, .oldest = 1, .kind = "schedule file"};
constexpr std::int64_t kMostRanks = 1 << 30;

std::string read_policy(const JsonField& field) {
  const std::string name = field.text();
  try {
    find_policy(name);
  } catch (const ConfigError& error) {
    field.fail(error.what());
  }
  return name;
}

}  // namespace

ScheduleFile parse_schedule_file(std::string_view json, const std::string& name_of_source) {
  const Json document = parse_json_file(json, name_of_source, kFormat);
  const JsonField root(document, name_of_source);
  const std::int64_t version = root.member("version").integer();
  const char* const chunk_bytes = version == 2 ? "piece_bytes" : "chunk_bytes";
  root.expect_members(
      {"format", "version", "model", "cluster", "ranks", "policy", "buckets"},
      version >= 2 ? std::vector<std::string_view>{chunk_bytes} : std::vector<std::string_view>{});
  ScheduleFile file{.model = root.member("model").text(),
                    .cluster = root.member("cluster").text(),
                    .ranks = static_cast<int>(root.member("ranks").integer(1, kMostRanks)),
                    .policy = read_policy(root.member("policy")),
                    .buckets = {.buckets = {}, .chunk_bytes = {}, .source = name_of_source}};
  for (const JsonField& bucket : root.member("buckets").elements()) {
    std::vector<std::string>& names = file.buckets.buckets.emplace_back();
    for (const JsonField& name : bucket.elements()) names.push_back(name.text());
  }
  if (!root.has(chunk_bytes)) return file;
  for (const JsonField& bytes : root.member(chunk_bytes).elements())
    file.buckets.chunk_bytes.push_back(bytes.integer(0, std::numeric_limits<std::int64_t>::max()));
  if (file.buckets.chunk_bytes.size() != file.buckets.buckets.size())
    root.member(chunk_bytes)
        .fail(fmt::format("{} sizes for {} buckets: give each bucket one, 0 for those that stay whole",
                          file.buckets.chunk_bytes.size(), file.buckets.buckets.size()));
  return file;
}

ScheduleFile read_schedule_file(const std::string& path) {
  return parse_schedule_file(os::read_file(path), path);
}

std::string to_json(const ScheduleFile& file) {
  try {
    std::string lines;  // a bucket a line: readable, and a change shows as one line
    for (const std::vector<std::string>& bucket : file.buckets.buckets)
      lines += (lines.empty() ? "\n    " : ",\n    ") + Json(bucket).dump();
    const std::vector<std::int64_t>& chunks = file.buckets.chunk_bytes;
    return fmt::format(
        "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"model\": {},\n  \"cluster\": {},\n"
        "  \"ranks\": {},\n  \"policy\": {},\n  \"buckets\": [{}\n  ]{}\n}}\n",
        kFormat.name, kFormat.version, Json(file.model).dump(), Json(file.cluster).dump(), file.ranks,
        Json(file.policy).dump(), lines,
        chunks.empty() ? "" : ",\n  \"chunk_bytes\": " + Json(chunks).dump());
  } catch (const Json::type_error&) {
    throw ConfigError(fmt::format("a name in the schedule for '{}' is not UTF-8: rename it", file.model));
  }
}

void write_schedule_file(const ScheduleFile& file, const std::string& path) {
  os::write_file_atomically(path, to_json(file));
}

}  // namespace dear
