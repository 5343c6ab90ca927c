#include "dear/base/diagnosis/job_records.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::diagnose {
namespace {

namespace files = std::filesystem;
constexpr int kMostRanks = 1 << 16;
constexpr JsonFormat kJob = {.name = "dear-job-record", .version = 1, .kind = "record of a job"};

// "rank-12.record" is 12; none for another name.
std::optional<int> rank_in(std::string_view name, std::string_view begin, std::string_view end) {
  if (!name.starts_with(begin) || !name.ends_with(end)) return std::nullopt;
  name = name.substr(begin.size(), name.size() - begin.size() - end.size());
  int rank = -1;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (error != std::errc() || rest != name.data() + name.size() || rank < 0 || rank >= kMostRanks)
    return std::nullopt;
  return rank;
}

RankSeen& of_rank(JobRecords& job, int rank) {
  job.ranks = std::max(job.ranks, rank + 1);
  if (std::cmp_less(job.seen.size(), job.ranks)) job.seen.resize(static_cast<std::size_t>(job.ranks));
  return job.seen[static_cast<std::size_t>(rank)];
}

// The letter of "State:\tS (sleeping)".
char state_in(const std::string& status) {
  const std::size_t at = status.find("State:");
  const std::size_t letter = at == std::string::npos ? at : status.find_first_not_of(" \t", at + 6);
  return letter == std::string::npos ? '\0' : status[letter];
}

void read_job(const std::string& path, JobRecords& job) {
  const Json document = parse_json_file(os::read_file(path), path, kJob);
  const JsonField file(document, path);
  of_rank(job, static_cast<int>(file.member("ranks").integer(1, kMostRanks)) - 1);
  if (file.has("verdict"))
    job.verdict = JobRecords::Verdict{
        .rank = static_cast<int>(file.member("verdict").member("rank").integer(0, kMostRanks - 1)),
        .cause = printable(file.member("verdict").member("cause").text())};
  for (const JsonField& one : file.member("members").elements()) {
    RankSeen& seen = of_rank(job, static_cast<int>(one.member("rank").integer(0, kMostRanks - 1)));
    seen.ended = one.member("ended").boolean();
    if (!seen.ended) continue;
    seen.code = static_cast<int>(one.member("code").integer(0, 255));
    seen.signal = static_cast<int>(one.member("signal").integer(0, 255));
    seen.told_to_end = one.member("told_to_end").boolean();
  }
}

void take_record(const std::string& path, int rank, JobRecords& job) {
  try {
    recorder::Record record = recorder::read_record(path);
    if (record.rank != rank && record.ranks > rank) rank = record.rank;
    of_rank(job, std::min(record.ranks, kMostRanks) - 1);
    of_rank(job, rank).record = std::move(record);
  } catch (const ConfigError& error) {
    job.unread.push_back(error.what());
  }
}

}  // namespace

JobRecords read_folder(const std::string& folder) {
  JobRecords job;
  std::error_code error;
  files::directory_iterator all(folder, error);
  if (error) throw ConfigError(fmt::format("{}: {}", folder, error.message()));
  bool any = false;
  for (const auto& one : all) {
    const std::string name = one.path().filename(), path = one.path();
    if (!one.is_regular_file()) continue;
    if (name == "job.json") {
      try {
        JobRecords with = job;  // a damaged file counts for nothing
        read_job(path, with);
        job = std::move(with);
        any = true;
      } catch (const ConfigError& refused) {
        job.unread.push_back(refused.what());
      }
    } else if (const auto rank = rank_in(name, "rank-", ".record")) {
      any = true;
      take_record(path, *rank, job);
    } else if (const auto of_state = rank_in(name, "rank-", ".state")) {
      of_rank(job, *of_state).state = state_in(os::read_file(path));
    } else if (const auto of_stacks = rank_in(name, "rank-", ".stacks")) {
      of_rank(job, *of_stacks).stacks = os::read_file(path);
    }
  }
  if (!any || job.ranks == 0)
    throw ConfigError(fmt::format(
        "{} has no record of a job{}: give the folder of `dear launch --record DIR`, or of DEAR_RECORD",
        folder, job.unread.empty() ? "" : " that can be read (" + job.unread.front() + ")"));
  return job;
}

JobRecords read_live(int launcher) {
  JobRecords job{.live = true};
  const std::string place = fmt::format("/proc/{}/fd", launcher);
  std::error_code error;
  files::directory_iterator all(place, error);
  if (error) throw ConfigError(fmt::format("process {}: {}", launcher, error.message()));
  for (const auto& one : all) {
    const std::string target = files::read_symlink(one.path(), error);
    const auto rank = rank_in(target, fmt::format("/memfd:{}", recorder::kRecordMemory), " (deleted)");
    if (!rank) continue;
    take_record(one.path(), *rank, job);
    RankSeen& seen = of_rank(job, *rank);
    if (!seen.record) continue;
    try {
      seen.state = state_in(os::read_file(fmt::format("/proc/{}/status", seen.record->pid)));
    } catch (const std::exception&) {
      seen.ended = true;
    }
  }
  if (job.ranks == 0)
    throw ConfigError(fmt::format(
        "process {} holds no records of ranks: give that of `dear launch`, whose ranks have made a group",
        launcher));
  return job;
}

}  // namespace dear::diagnose
