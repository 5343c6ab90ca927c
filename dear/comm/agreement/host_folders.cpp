#include "dear/comm/agreement/host_folders.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/os/host_key.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"

namespace dear::agreement {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kAtOnce = std::int64_t{4} << 20;  // bytes of a message

// "BYTES NAME" of each file below the folder; not those that are being written.
std::string listed(const std::string& folder) {
  std::string text;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    const auto bytes = entry->file_size(gone);
    if (entry->is_regular_file(gone) && !gone && entry->path().extension() == ".pt")
      text += fmt::format("{} {}\n", bytes, fs::relative(entry->path(), folder).string());
  }
  return text;
}

std::map<std::string, std::int64_t> files_in(const std::string& text) {
  std::map<std::string, std::int64_t> files;
  std::istringstream lines(text);
  std::int64_t bytes = 0;
  for (std::string name; lines >> bytes && lines.get() && std::getline(lines, name);) files[name] = bytes;
  return files;
}

void read_at(const os::OpenedFile& file, std::int64_t offset, std::span<std::byte> into,
             const std::string& path) {
  while (!into.empty()) {
    const ssize_t got = ::pread(file.descriptor.get(), into.data(), into.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw ConfigError(with_errno(fmt::format("cannot read '{}'", path), got < 0 ? errno : EIO));
    into = into.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

}  // namespace

HostFolders::HostFolders(const Group& group, std::string folder) : group_(group), folder_(std::move(folder)) {
  std::map<std::string, std::size_t> numbers;
  std::size_t mine = 0;
  const std::vector<std::string> names = all_gather_text(group_, os::host_key() + " " + folder_);
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto [found, is_new] = numbers.try_emplace(names[static_cast<std::size_t>(rank)], hosts_.size());
    if (is_new) hosts_.emplace_back();
    hosts_[found->second].push_back(rank);
    if (rank == group_.rank()) mine = found->second;
  }
  leads_ = hosts_[mine].front() == group_.rank();
  if (hosts_.size() > 1) channels_ = group_.open_channels(1);
}

void HostFolders::mirror(const std::string& file, const Run& run) {
  if (!several()) return;
  std::error_code error;
  const auto bytes = fs::file_size(fs::path(folder_) / file, error);
  const auto all = all_gather_text(group_, fmt::format("{} {}", error ? 0 : bytes, file));
  std::vector<Copy> copies;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    const std::vector<int>& next = hosts_[(host + 1) % hosts_.size()];
    for (std::size_t i = 0; i < hosts_[host].size(); ++i) {
      const int from = hosts_[host][i];
      for (const auto& [name, count] : files_in(all[static_cast<std::size_t>(from)]))
        copies.push_back({.file = name, .bytes = count, .from = from, .to = next[i % next.size()]});
    }
  }
  run([&] { run_all(copies); });
}

void HostFolders::gather(const Run& run) {
  if (!several()) return;
  const auto all = all_gather_text(group_, leads_ ? listed(folder_) : "");
  std::vector<std::map<std::string, std::int64_t>> files;
  for (const auto& host : hosts_) files.push_back(files_in(all[static_cast<std::size_t>(host.front())]));
  std::map<std::string, std::size_t> holders;  // the first host that has a file
  for (std::size_t host = 0; host < hosts_.size(); ++host)
    for (const auto& [name, bytes] : files[host]) holders.try_emplace(name, host);
  std::vector<Copy> copies;
  for (const auto& [name, holder] : holders)
    for (std::size_t host = 0; host < hosts_.size(); ++host)
      if (!files[host].contains(name))
        copies.push_back({.file = name,
                          .bytes = files[holder].at(name),
                          .from = hosts_[holder].front(),
                          .to = hosts_[host].front()});
  run([&] { run_all(copies); });
}

// In one order on all ranks, so that no two wait for each other.
void HostFolders::run_all(const std::vector<Copy>& copies) {
  std::exception_ptr error;
  for (const Copy& copy : copies) try {
      if (copy.from == group_.rank()) send(copy);
      if (copy.to == group_.rank()) receive(copy);
    } catch (const ConfigError&) {
      if (!error) error = std::current_exception();
    }
  if (error) std::rethrow_exception(error);
}

// A message behind the last tells whether all of them could be read.
void HostFolders::send(const Copy& copy) {
  const std::string path = (fs::path(folder_) / copy.file).string(), what = fmt::format("copy of '{}'", path);
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(copy.bytes, kAtOnce)));
  std::exception_ptr error;
  std::optional<os::OpenedFile> file;
  for (std::int64_t offset = 0; offset < copy.bytes; offset += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, copy.bytes - offset);
    try {
      if (!file) file.emplace(os::open_file(path));
      if (!error) read_at(*file, offset, std::span(bytes).first(static_cast<std::size_t>(count)), path);
    } catch (const ConfigError&) {
      error = std::current_exception();
    }
    channels::Transfer part{.direction = channels::Transfer::Direction::send,
                            .peer = copy.to,
                            .data = bytes.data(),
                            .bytes = count};
    transfer(part, what);
  }
  std::byte read{error ? std::uint8_t{0} : std::uint8_t{1}};
  channels::Transfer last{
      .direction = channels::Transfer::Direction::send, .peer = copy.to, .data = &read, .bytes = 1};
  transfer(last, what);
  if (error) std::rethrow_exception(error);
}

void HostFolders::receive(const Copy& copy) {
  const std::string path = (fs::path(folder_) / copy.file).string(), what = fmt::format("copy of '{}'", path);
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(copy.bytes, kAtOnce)));
  std::exception_ptr error;
  std::optional<os::AtomicFile> file;
  const auto attempt = [&](const auto& act) {
    if (error) return;
    try {
      act();
    } catch (const ConfigError&) {
      error = std::current_exception();
    }
  };
  attempt([&] {
    std::error_code failed;
    fs::create_directories(fs::path(path).parent_path(), failed);
    file.emplace(path);
  });
  for (std::int64_t offset = 0; offset < copy.bytes; offset += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, copy.bytes - offset);
    channels::Transfer part{.direction = channels::Transfer::Direction::receive,
                            .peer = copy.from,
                            .data = bytes.data(),
                            .bytes = count};
    transfer(part, what);
    attempt([&] { file->write(std::span(bytes).first(static_cast<std::size_t>(count))); });
  }
  std::byte read{};
  channels::Transfer last{
      .direction = channels::Transfer::Direction::receive, .peer = copy.from, .data = &read, .bytes = 1};
  transfer(last, what);
  if (read != std::byte{0}) attempt([&] { file->commit(); });
  if (error) std::rethrow_exception(error);
}

void HostFolders::transfer(channels::Transfer& transfer, const std::string& what) {
  const Deadline deadline = Deadline::after(group_.timeout());
  channels_->start(transfer);
  while (!transfer.done) channels_->wait([&] { return what; }, deadline);
}

}  // namespace dear::agreement
