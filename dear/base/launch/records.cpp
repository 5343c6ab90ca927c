#include "dear/base/launch/records.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/os/atomic_file.h"
#include "dear/base/recorder/record.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"

namespace dear::launch {
namespace {

namespace files = std::filesystem;

// "" where it cannot be read: a process may end at any time.
std::string text_of(const files::path& path) {
  try {
    return os::read_file(path);
  } catch (const std::exception&) {
    return "";
  }
}

// What the system says of a process and of where its threads sleep.
std::string state_of(pid_t pid) {
  const files::path process = fmt::format("/proc/{}", pid);
  std::string state = text_of(process / "status");
  std::error_code gone;
  for (const auto& thread : files::directory_iterator(process / "task", gone))
    state += fmt::format("thread {}\t{}\t{}\n", thread.path().filename().string(),
                         text_of(thread.path() / "wchan"), text_of(thread.path() / "comm"));
  return state;
}

// The record of a rank; none where it has opened none.
std::optional<recorder::Record> record_in(const os::FileDescriptor& memory) {
  try {
    return recorder::read_record(fmt::format("/proc/self/fd/{}", memory.get()));
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

}  // namespace

std::string folder_of_start(const std::string& record, int restarts) {
  return record.empty() || restarts == 0 ? record : fmt::format("{}/restart-{}", record, restarts);
}

Records::Records(int ranks, std::string folder, int first, bool leads)
    : folder_(std::move(folder)), first_(first), leads_(leads) {
  const char* const named = std::getenv("DEAR_RECORD");
  elsewhere_ = folder_.empty() && named != nullptr && *named != '\0';
  if (elsewhere_) return;
  for (int rank = first; rank < first + ranks; ++rank) {
    const std::string name = std::string(recorder::kRecordMemory) + std::to_string(rank);
    memory_.emplace_back(::memfd_create(name.c_str(), MFD_CLOEXEC));
    if (!memory_.back().is_open())
      throw TransportError(
          fmt::format("no memory for the record of rank {}: {}", rank, std::strerror(errno)));
  }
  if (folder_.empty()) return;
  try {
    files::create_directories(folder_);
    for (const auto& one : files::directory_iterator(folder_)) {
      const std::string name = one.path().filename();
      if (leads_ && (name.starts_with("rank-") || name == "job.json")) files::remove(one.path());
    }
    if (leads_) os::write_file_atomically(folder_ + "/job.json", "{}\n");
  } catch (const std::exception& error) {
    throw ConfigError(fmt::format("--record {}: {}", folder_, error.what()));
  }
  folder_ = files::absolute(folder_);
}

const os::FileDescriptor* Records::memory_of(int rank) const {
  const auto at = static_cast<std::size_t>(rank - first_);
  return rank >= first_ && at < memory_.size() ? &memory_[at] : nullptr;
}

std::string Records::file(int rank, const char* ending) const {
  return fmt::format("{}/rank-{}.{}", folder_, rank, ending);
}

Variables Records::variables(int rank) const {
  if (elsewhere_) return {};
  Variables all{{"DEAR_RECORD", fmt::format("/proc/{}/fd/{}", ::getpid(), memory_of(rank)->get())}};
  if (!folder_.empty()) all.emplace_back("DEAR_STACKS", file(rank, "stacks"));
  return all;
}

void Records::look(const std::vector<SeenRank>& ranks) const {
  if (folder_.empty()) return;
  bool asked = false;
  for (const SeenRank& one : ranks) {
    const os::FileDescriptor* const memory = memory_of(one.rank);
    if (one.ended || memory == nullptr) continue;
    os::write_file_atomically(file(one.rank, "state"), state_of(one.pid));
    const auto record = record_in(*memory);
    const int signal = record ? record->stacks_signal : 0;
    if (signal > 0) asked = ::kill(one.pid, signal) == 0 || asked;
  }
  constexpr auto kStacks = std::chrono::milliseconds(300);
  if (asked) std::this_thread::sleep_for(kStacks);  // nobody says when they are written
}

std::int64_t Records::furthest_step() const {
  std::int64_t furthest = 0;
  for (const os::FileDescriptor& memory : memory_)
    if (const auto record = record_in(memory))
      furthest = std::max(furthest, record->first_step + record->steps);
  return furthest;
}

void Records::write(const std::vector<SeenRank>& ranks, int culprit, const std::string& verdict) const {
  if (folder_.empty()) return;
  nlohmann::ordered_json job{{"format", "dear-job-record"}, {"version", 1}, {"ranks", ranks.size()}};
  if (!verdict.empty()) job["verdict"] = {{"rank", culprit}, {"cause", verdict}};
  for (const SeenRank& one : ranks) {
    const os::FileDescriptor* const memory = memory_of(one.rank);
    const std::string record =
        memory == nullptr ? "" : text_of(fmt::format("/proc/self/fd/{}", memory->get()));
    if (!record.empty()) os::write_file_atomically(file(one.rank, "record"), record);
    nlohmann::ordered_json member{{"rank", one.rank}, {"pid", one.pid}, {"ended", one.ended}};
    if (one.ended)
      member.update({{"code", one.code}, {"signal", one.signal}, {"told_to_end", one.told_to_end}});
    job["members"].push_back(std::move(member));
  }
  if (leads_) os::write_file_atomically(folder_ + "/job.json", job.dump(2) + "\n");
}

}  // namespace dear::launch
