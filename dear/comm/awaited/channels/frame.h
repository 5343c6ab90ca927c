#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dear/comm/channels/channels.h"

// [Note: messages over a messaging library] Gloo ends the process when a message is longer than its receive.
// So a message is led by a frame of one size that says its length, and the receiver compares. What fits
// travels in the frame; what does not follows at once, under a tag made of the length: two lengths never
// meet, and no time is lost for a question. What was agreed needs no frame then. Messaging libraries keep the
// order of messages with one tag.
namespace dear::channels {

inline constexpr std::int64_t kInlineBytes = 248;

struct Frame {
  std::int64_t bytes = 0;
  std::array<std::byte, kInlineBytes> content{};
};
static_assert(sizeof(Frame) == 256);

inline int frame_tag(Tag tag) { return static_cast<int>(tag << 16U); }

inline int content_tag(Tag tag, std::int64_t bytes) {
  const std::uint64_t mixed = static_cast<std::uint64_t>(bytes) * 0x9E3779B97F4A7C15ULL;
  return static_cast<int>(tag << 16U) + 1 + static_cast<int>((mixed >> 32U) % 65'535U);
}

// Above all of these.
inline constexpr int kLastWordsTag = static_cast<int>((kMostTag + 1) << 16U);
inline constexpr int kMostPointToPointTag = kLastWordsTag;

}  // namespace dear::channels
