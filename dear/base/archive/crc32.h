#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dear::archive {

// CRC-32 of ISO-HDLC, as in ZIP and zlib (polynomial 0x04C11DB7, reflected); `before` is that of the bytes
// before these.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace dear::archive
