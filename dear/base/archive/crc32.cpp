#include "dear/base/archive/crc32.h"

#include <array>
#include <cstring>

namespace dear::archive {
namespace {

constexpr std::uint32_t kPolynomial = 0xEDB88320U;
constexpr std::size_t kSlices = 16;

// Entry [k][b]: the remainder of byte b with k zero bytes behind it, so that sixteen bytes are sixteen
// look-ups that do not wait for each other ("slicing-by-N", Kounavis and Berry, doi:10.1109/TC.2007.70821).
constexpr std::array<std::array<std::uint32_t, 256>, kSlices> make_tables() {
  std::array<std::array<std::uint32_t, 256>, kSlices> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) != 0 ? kPolynomial : 0U);
    tables[0][byte] = value;
  }
  for (std::size_t slice = 1; slice < kSlices; ++slice)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[slice][byte] = (tables[slice - 1][byte] >> 8U) ^ tables[0][tables[slice - 1][byte] & 0xFFU];
  return tables;
}

constexpr auto kTables = make_tables();

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  const auto* next = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t left = bytes.size();
  for (; left >= kSlices; left -= kSlices, next += kSlices) {
    std::array<std::uint32_t, kSlices / 4> words;
    std::memcpy(words.data(), next, kSlices);  // little-endian, as all machines that PyTorch runs on
    words[0] ^= crc;
    crc = 0;
    for (std::size_t word = 0; word < words.size(); ++word)
      for (std::size_t byte = 0; byte < 4; ++byte)
        crc ^= kTables[kSlices - 1 - 4 * word - byte][(words[word] >> (8 * byte)) & 0xFFU];
  }
  for (; left > 0; --left, ++next) crc = (crc >> 8U) ^ kTables[0][(crc ^ *next) & 0xFFU];
  return ~crc;
}

}  // namespace dear::archive
