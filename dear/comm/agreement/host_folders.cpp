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

// A file travels in parts; a byte behind the last tells whether all of them could be read.
class HostFolders::Lane {
 public:
  Lane(HostFolders& owner, channels::Transfer::Direction direction)
      : owner_(owner), sends_(direction == channels::Transfer::Direction::send) {
    part_.direction = direction;
  }
  void add(const Copy& copy) { copies_.push_back(&copy); }
  [[nodiscard]] const std::exception_ptr& error() const { return error_; }
  [[nodiscard]] std::string describe() const {
    return fmt::format("{} of '{}'", sends_ ? "sending" : "receipt", path());
  }

  // Goes on as far as it can without waiting. False when all is done.
  bool advance() {
    if (under_way_ && !part_.done) return true;
    if (under_way_) end_part();
    if (at_ == copies_.size()) return false;
    begin_part();
    return true;
  }

 private:
  [[nodiscard]] const Copy& copy() const { return *copies_[at_]; }
  [[nodiscard]] std::string path() const { return (fs::path(owner_.folder_) / copy().file).string(); }
  [[nodiscard]] bool is_last() const { return offset_ == copy().bytes; }

  void begin_part() {
    if (offset_ == 0 && !is_open_) {
      is_open_ = true;
      failed_ = false;
      bytes_.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, std::min(copy().bytes, kAtOnce))));
      attempt([&] { open(); });
    }
    part_.peer = sends_ ? copy().to : copy().from;
    part_.data = bytes_.data();
    part_.bytes = is_last() ? 1 : std::min(kAtOnce, copy().bytes - offset_);
    part_.done = false;
    if (sends_ && is_last())
      bytes_.front() = failed_ ? std::byte{0} : std::byte{1};
    else if (sends_)
      attempt([&] { read_at(*from_, offset_, room(), path()); });
    owner_.channels_->start(part_);
    under_way_ = true;
  }

  void end_part() {
    under_way_ = false;
    if (!is_last()) {
      if (!sends_) attempt([&] { to_->write(room()); });
      offset_ += part_.bytes;
      return;
    }
    if (!sends_ && bytes_.front() == std::byte{1}) attempt([&] { to_->commit(); });
    from_.reset();
    to_.reset();
    is_open_ = false;
    offset_ = 0;
    ++at_;
  }

  void open() {
    if (sends_) {
      from_.emplace(os::open_file(path()));
      return;
    }
    std::error_code failed;  // AtomicFile says why
    fs::create_directories(fs::path(path()).parent_path(), failed);
    to_.emplace(path());
  }
  [[nodiscard]] std::span<std::byte> room() {
    return std::span(bytes_).first(static_cast<std::size_t>(part_.bytes));
  }
  // Keeps the first error, and goes on with what the other side expects.
  template <typename Act>
  void attempt(const Act& act) {
    if (failed_) return;
    try {
      act();
    } catch (const ConfigError&) {
      failed_ = true;
      if (!error_) error_ = std::current_exception();
    }
  }

  HostFolders& owner_;
  const bool sends_;
  std::vector<const Copy*> copies_;
  std::size_t at_ = 0;
  std::int64_t offset_ = 0;
  std::vector<std::byte> bytes_;
  channels::Transfer part_;
  std::optional<os::OpenedFile> from_;
  std::optional<os::AtomicFile> to_;
  bool is_open_ = false, under_way_ = false, failed_ = false;
  std::exception_ptr error_;
};

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

// In one order on all ranks: of the copies that are not done the first is that which its sender sends and its
// receiver receives next.
void HostFolders::run_all(const std::vector<Copy>& copies) {
  Lane sends(*this, channels::Transfer::Direction::send),
      receives(*this, channels::Transfer::Direction::receive);
  for (const Copy& copy : copies) {
    if (copy.from == group_.rank()) sends.add(copy);
    if (copy.to == group_.rank()) receives.add(copy);
  }
  for (;;) {
    const bool sending = sends.advance(), receiving = receives.advance();
    if (!sending && !receiving) break;
    const Lane& one = receiving ? receives : sends;
    channels_->wait([&] { return one.describe(); }, Deadline::after(group_.timeout()));
  }
  for (const Lane* lane : {&sends, &receives})
    if (lane->error()) std::rethrow_exception(lane->error());
}

}  // namespace dear::agreement
