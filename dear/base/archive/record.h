#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dear::archive {

// One record of a file, as its directory tells of it.
struct Record {
  std::string name;          // without the folder
  std::uint64_t header = 0;  // the offset in the file at which it begins
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
};

// The name of the record that holds the digest of the others.
inline constexpr const char* kSeal = "dear/seal";
// The seal is the text of that record: it changes with the name, the size and the checksum of any of the
// records.
std::string seal_of(const std::vector<Record>& records);

// The parts of a ZIP file: PKWARE, "APPNOTE.TXT - .ZIP File Format Specification", version 6.3.10.
namespace zip {
inline constexpr std::uint32_t kLocalHeader = 0x04034b50;
inline constexpr std::uint32_t kDirectoryHeader = 0x02014b50;
inline constexpr std::uint32_t kEnd = 0x06054b50;
inline constexpr std::uint32_t kEnd64 = 0x06064b50;
inline constexpr std::uint32_t kEnd64Locator = 0x07064b50;
inline constexpr std::size_t kLocalHeaderBytes = 30, kDirectoryHeaderBytes = 46, kEndBytes = 22,
                             kEnd64Bytes = 56, kEnd64LocatorBytes = 20;
inline constexpr std::uint16_t kExtra64 = 1;             // sizes and offsets of 64 bits
inline constexpr std::uint16_t kExtraPadding = 0x4246;   // "FB", as torch pads
inline constexpr std::uint32_t kElsewhere = 0xFFFFFFFF;  // a number that stands in kExtra64
}  // namespace zip

}  // namespace dear::archive
