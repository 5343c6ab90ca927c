#include "dear/base/archive/zip_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <unistd.h>
#include <utility>

#include "dear/base/archive/crc32.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/os/retried.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::archive {
namespace {

constexpr std::uint64_t kMostRecords = 16'000'000;

}  // namespace

void ZipReader::refuse(const std::string& why) const {
  constexpr std::size_t kLongest = 500;  // a name in a damaged file may be anything
  throw ConfigError("cannot read '" + path_ + "' as a checkpoint: " + printable(shortened(why, kLongest)));
}

ZipReader::ZipReader(std::string path) : path_(std::move(path)) {
  os::OpenedFile file = os::open_file(path_);
  file_bytes_ = static_cast<std::uint64_t>(file.bytes);
  if (file_bytes_ < zip::kEndBytes)
    refuse("it has " + std::to_string(file_bytes_) + " bytes, which is no such file");
  descriptor_ = std::make_shared<const os::FileDescriptor>(std::move(file.descriptor));
  read_directory();
  directory_ = {};
}

template <typename T>
T ZipReader::number_at(std::uint64_t offset) const {
  if (offset > file_bytes_ || file_bytes_ - offset < sizeof(T))
    refuse("it is cut short, or its directory is damaged");
  T value;
  const std::span<std::byte> into = std::as_writable_bytes(std::span(&value, 1));
  if (offset >= directory_begin_ && offset - directory_begin_ + sizeof(T) <= directory_.size())
    std::memcpy(into.data(), directory_.data() + (offset - directory_begin_), into.size());
  else
    read_whole(offset, into);
  return value;
}

void ZipReader::read_whole(std::uint64_t offset, std::span<std::byte> into) const {
  for (std::size_t done = 0; done < into.size();) {
    const std::size_t got = read_at(offset + done, into.subspan(done));
    if (got == 0) refuse("it was cut short while it was read");
    done += got;
  }
}

// The end of the directory is the last thing in the file, and neither torch nor we put a comment behind it.
void ZipReader::read_directory() {
  const std::uint64_t end = file_bytes_ - zip::kEndBytes;
  if (number_at<std::uint32_t>(end) != zip::kEnd)
    refuse(number_at<std::uint32_t>(0) == zip::kLocalHeader ? "it is cut short" : "it is no such file");
  std::uint64_t count = number_at<std::uint16_t>(end + 10);
  std::uint64_t bytes = number_at<std::uint32_t>(end + 12);
  std::uint64_t begin = number_at<std::uint32_t>(end + 16);
  if (end >= zip::kEnd64LocatorBytes &&
      number_at<std::uint32_t>(end - zip::kEnd64LocatorBytes) == zip::kEnd64Locator) {
    const auto end64 = number_at<std::uint64_t>(end - zip::kEnd64LocatorBytes + 8);
    if (number_at<std::uint32_t>(end64) != zip::kEnd64) refuse("its directory is damaged");
    count = number_at<std::uint64_t>(end64 + 32);
    bytes = number_at<std::uint64_t>(end64 + 40);
    begin = number_at<std::uint64_t>(end64 + 48);
  }
  if (begin > end || bytes > end - begin || count > kMostRecords ||
      count * zip::kDirectoryHeaderBytes > bytes)
    refuse("its directory is damaged");
  directory_.resize(bytes);
  read_whole(begin, directory_);
  directory_begin_ = begin;
  std::optional<std::string> folder;
  std::vector<Record> records;
  std::uint64_t at = begin, stored = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (number_at<std::uint32_t>(at) != zip::kDirectoryHeader) refuse("its directory is damaged");
    Record record{.name = {},
                  .header = number_at<std::uint32_t>(at + 42),
                  .bytes = number_at<std::uint32_t>(at + 24),
                  .crc = number_at<std::uint32_t>(at + 16)};
    const auto method = number_at<std::uint16_t>(at + 10);
    const auto name_bytes = number_at<std::uint16_t>(at + 28);
    const auto extra_bytes = number_at<std::uint16_t>(at + 30);
    const auto comment_bytes = number_at<std::uint16_t>(at + 32);
    const std::uint64_t name_at = at + zip::kDirectoryHeaderBytes;
    at = name_at + name_bytes + extra_bytes + comment_bytes;
    if (at > begin + bytes) refuse("its directory is damaged");
    record.name.assign(reinterpret_cast<const char*>(directory_.data() + (name_at - begin)), name_bytes);
    std::uint64_t extra = name_at + name_bytes;
    const std::uint64_t extra_end = extra + extra_bytes;
    while (extra + 4 <= extra_end) {
      std::uint64_t number = extra + 4;
      extra = number + number_at<std::uint16_t>(extra + 2);
      if (extra > extra_end) refuse("its directory is damaged");
      if (number_at<std::uint16_t>(number - 4) != zip::kExtra64) continue;
      if (record.bytes == zip::kElsewhere) {
        record.bytes = number_at<std::uint64_t>(number);
        number += 16;  // the compressed size, which is the same
      }
      if (record.header == zip::kElsewhere) record.header = number_at<std::uint64_t>(number);
    }
    if (record.name.find('\0') != std::string::npos) refuse("a record's name has a NUL in it");
    const std::size_t slash = record.name.find('/');
    if (slash == std::string::npos) refuse("its record '" + record.name + "' lies in no folder");
    if (!folder) folder = record.name.substr(0, slash);
    if (record.name.substr(0, slash) != *folder) refuse("its records lie in several folders");
    record.name.erase(0, slash + 1);
    if (method != 0) refuse("its record '" + record.name + "' is compressed: write it as torch.save() does");
    const Extent extent = extent_of(record);
    // Records that share bytes would have them read as often as there are records.
    if ((stored += extent.size) > file_bytes_) refuse("its directory is damaged");
    if (!records_.emplace(record.name, Found{extent, record.crc}).second)
      refuse("it has two records '" + record.name + "'");
    records.push_back(std::move(record));
  }
  if (!sealed()) return;
  if (records.back().name != kSeal) refuse("its directory is damaged");
  records.pop_back();
  const std::string seal = seal_of(records);
  if (extent_of(kSeal).size != seal.size() || read_text(kSeal) != seal) refuse("its directory is damaged");
}

ZipReader::Extent ZipReader::extent_of(const Record& record) const {
  std::array<char, zip::kLocalHeaderBytes> header{};
  std::size_t got = 0;
  for (std::size_t more = 1; got < header.size() && more > 0; got += more)
    more = read_at(record.header + got, std::as_writable_bytes(std::span(header)).subspan(got));
  const auto number_in = [&]<typename T>(std::size_t offset, T value) {
    std::memcpy(&value, header.data() + offset, sizeof value);
    return value;
  };
  if (got != header.size() || number_in(0, std::uint32_t{}) != zip::kLocalHeader)
    refuse("its record '" + record.name + "' is not where the directory says");
  const std::uint64_t begin = record.header + zip::kLocalHeaderBytes + number_in(26, std::uint16_t{}) +
                              number_in(28, std::uint16_t{});
  if (begin > file_bytes_ || record.bytes > file_bytes_ - begin)
    refuse("its record '" + record.name + "' is cut short");
  return {.begin = begin, .size = static_cast<std::size_t>(record.bytes)};
}

const ZipReader::Found& ZipReader::find(std::string_view name) const {
  const auto found = records_.find(name);
  if (found == records_.end()) refuse("it has no record '" + std::string(name) + "'");
  return found->second;
}

// Less than there is room for where the system gives less; 0 behind the end.
std::size_t ZipReader::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  constexpr std::size_t kAtATime = 1 << 20;  // whose checksum is taken while they are in the cache
  const ssize_t got = os::retried([&] {
    return ::pread(descriptor_->get(), into.data(), std::min(into.size(), kAtATime),
                   static_cast<off_t>(offset));
  });
  if (got < 0) throw ConfigError(with_errno("cannot read '" + path_ + "'", errno) + " (check its disk)");
  return static_cast<std::size_t>(got);
}

// Reads a record piece by piece, each into the memory of `room(bytes that were read before)`, and compares
// its checksum.
template <typename Room>
void ZipReader::read_record(std::string_view name, const Found& found, const Room& room) const {
  std::uint32_t crc = 0;
  for (std::size_t done = 0; done < found.extent.size;) {
    const std::span<std::byte> into = room(done);
    const std::size_t got = read_at(found.extent.begin + done, into);
    if (got == 0) refuse("it was cut short while it was read");
    crc = crc32(into.first(got), crc);
    done += got;
  }
  if (crc != found.crc)
    refuse("the bytes of its record '" + std::string(name) + "' are not those that were written");
}

void ZipReader::read(std::string_view name, std::span<std::byte> into) const {
  const Found& found = find(name);
  if (found.extent.size != into.size()) refuse("its record '" + std::string(name) + "' has another size");
  read_record(name, found, [&](std::size_t done) { return into.subspan(done); });
}

void ZipReader::read_part(std::string_view name, std::size_t offset, std::span<std::byte> into) const {
  const Extent extent = extent_of(name);
  if (offset > extent.size || into.size() > extent.size - offset)
    refuse("its record '" + std::string(name) + "' is cut short");
  read_whole(extent.begin + offset, into);
}

std::string ZipReader::read_text(std::string_view name) const {
  std::string text(extent_of(name).size, '\0');
  read(name, std::as_writable_bytes(std::span(text)));
  return text;
}

void ZipReader::verify() const {
  std::vector<std::byte> piece(std::size_t{1} << 20);
  for (const auto& [name, found] : records_)
    read_record(name, found, [&, bytes = found.extent.size](std::size_t done) {
      return std::span(piece).first(std::min(piece.size(), bytes - done));
    });
}

}  // namespace dear::archive
