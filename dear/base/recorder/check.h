#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "dear/base/recorder/record.h"

// Events are written by several threads and read by another process, without locks: as eight words each,
// which a reader takes for an event only where the check in them is right.
namespace dear::recorder {

using Words = std::array<std::uint64_t, sizeof(Event) / sizeof(std::uint64_t)>;

inline std::uint16_t check_of(Event event) {
  event.check = 0;
  Words words;
  std::memcpy(words.data(), &event, sizeof event);
  std::uint64_t sum = 0x9e3779b97f4a7c15;
  for (const std::uint64_t word : words) sum = (sum ^ word) * 0xff51afd7ed558ccd, sum ^= sum >> 32;
  return static_cast<std::uint16_t>(sum | 1);  // never that of zeros
}

inline void write(const Event& from, Event& to) {
  Words words;
  std::memcpy(words.data(), &from, sizeof from);
  auto* const out = reinterpret_cast<std::uint64_t*>(&to);
  for (std::size_t i = 0; i < words.size(); ++i)
    std::atomic_ref(out[i]).store(words[i], std::memory_order_relaxed);
}

inline Event read(const Event& from) {
  Words words;
  auto* const in = reinterpret_cast<std::uint64_t*>(const_cast<Event*>(&from));
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = std::atomic_ref(in[i]).load(std::memory_order_relaxed);
  Event event;
  std::memcpy(static_cast<void*>(&event), words.data(), sizeof event);
  return event;
}

}  // namespace dear::recorder
