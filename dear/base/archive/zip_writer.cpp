#include "dear/base/archive/zip_writer.h"

#include <algorithm>
#include <concepts>

#include "dear/base/archive/crc32.h"

namespace dear::archive {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSmall = 4096;  // bytes that are written together with their header
constexpr const char* kFolder = "archive/";

// Little-endian bytes, one number after another.
class Bytes {
 public:
  template <std::unsigned_integral T>
  Bytes& add(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      text_.push_back(static_cast<char>((value >> (8 * i)) & 0xFFU));
    return *this;
  }
  Bytes& add(std::string_view text) {
    text_ += text;
    return *this;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::uint32_t narrow(std::uint64_t value) {
  return value < zip::kElsewhere ? static_cast<std::uint32_t>(value) : zip::kElsewhere;
}

bool is_large(std::uint64_t value) { return value >= zip::kElsewhere; }

// Sizes that do not fit into 32 bits, and the offset where it is asked for.
std::string extra_of(const Record& record, bool with_offset) {
  Bytes numbers;
  if (is_large(record.bytes)) numbers.add(record.bytes).add(record.bytes);
  if (with_offset && is_large(record.header)) numbers.add(record.header);
  if (numbers.text().empty()) return "";
  return Bytes()
      .add(zip::kExtra64)
      .add(static_cast<std::uint16_t>(numbers.text().size()))
      .add(numbers.text())
      .text();
}

// The fields that both headers of a record share, from the version that reads it to the lengths.
void add_common(Bytes& bytes, const Record& record, std::size_t name_bytes, std::size_t extra_bytes) {
  constexpr std::uint16_t kVersion = 45, kNone = 0, kDate = 0x21;  // the first day that the format knows
  bytes.add(kVersion).add(kNone).add(kNone).add(kNone).add(kDate).add(record.crc);
  bytes.add(narrow(record.bytes)).add(narrow(record.bytes));
  bytes.add(static_cast<std::uint16_t>(name_bytes)).add(static_cast<std::uint16_t>(extra_bytes));
}

}  // namespace

ZipWriter::ZipWriter(const std::string& path) : file_(path) {}

void ZipWriter::write(std::string_view bytes) {
  file_.write(std::as_bytes(std::span(bytes)));
  offset_ += bytes.size();
}

void ZipWriter::add(std::string_view name, std::string_view bytes) {
  add(name, std::as_bytes(std::span(bytes)));
}

void ZipWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  const std::string path = kFolder + std::string(name);
  const Record record{
      .name = std::string(name), .header = offset_, .bytes = bytes.size(), .crc = crc32(bytes)};
  std::string extra = extra_of(record, false);
  const std::size_t before = offset_ + zip::kLocalHeaderBytes + path.size() + extra.size() + 4;
  const std::size_t padding = (kAlignment - before % kAlignment) % kAlignment;
  extra += Bytes()
               .add(zip::kExtraPadding)
               .add(static_cast<std::uint16_t>(padding))
               .add(std::string(padding, 'Z'))
               .text();
  Bytes header;
  header.add(zip::kLocalHeader);
  add_common(header, record, path.size(), extra.size());
  header.add(path).add(extra);
  if (bytes.size() < kSmall) {
    write(header.add({reinterpret_cast<const char*>(bytes.data()), bytes.size()}).text());
  } else {
    write(header.text());
    file_.write(bytes);
    offset_ += bytes.size();
  }
  records_.push_back(record);
}

void ZipWriter::finish() {
  const std::string seal = seal_of(records_);
  add(kSeal, seal);
  write_directory();
  file_.commit();
}

void ZipWriter::write_directory() {
  const std::uint64_t begin = offset_;
  Bytes directory;
  for (const Record& record : records_) {
    const std::string path = kFolder + record.name;
    const std::string extra = extra_of(record, true);
    constexpr std::uint16_t kMadeBy = 45, kNone = 0;
    directory.add(zip::kDirectoryHeader).add(kMadeBy);
    add_common(directory, record, path.size(), extra.size());
    directory.add(kNone).add(kNone).add(kNone).add(std::uint32_t{0}).add(narrow(record.header));  // no
                                                                                                  // comment
    directory.add(path).add(extra);
  }
  const std::uint64_t bytes = directory.text().size();
  const std::uint64_t count = records_.size();
  constexpr std::uint16_t kMost = 0xFFFF, kNone = 0;
  constexpr std::uint32_t kDisk = 0;
  if (count >= kMost || is_large(begin) || is_large(bytes)) {
    constexpr std::uint64_t kRest = zip::kEnd64Bytes - 12;
    directory.add(zip::kEnd64).add(kRest).add(std::uint16_t{45}).add(std::uint16_t{45}).add(kDisk).add(kDisk);
    directory.add(count).add(count).add(bytes).add(begin);
    directory.add(zip::kEnd64Locator).add(kDisk).add(begin + bytes).add(std::uint32_t{1});
  }
  const auto shown = static_cast<std::uint16_t>(std::min<std::uint64_t>(count, kMost));
  directory.add(zip::kEnd).add(kNone).add(kNone).add(shown).add(shown);
  directory.add(narrow(bytes)).add(narrow(begin)).add(kNone);
  write(directory.text());
}

}  // namespace dear::archive
