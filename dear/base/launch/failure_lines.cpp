#include "dear/base/launch/failure_lines.h"

#include <algorithm>

namespace dear::launch {

bool FailureLines::take(std::string_view line) {
  constexpr std::string_view kRank = "rank ";
  const std::string begin = who_ + ": ";
  if (!line.starts_with(begin)) return false;
  std::string_view reason = line.substr(begin.size());
  if (reason.starts_with(kRank)) {
    const std::size_t end = reason.find_first_not_of("0123456789", kRank.size());
    if (end != std::string_view::npos && end > kRank.size() && reason.substr(end, 2) == ": ")
      reason.remove_prefix(end + 2);
  }
  lines_.push_back({.text = std::string(line), .reason = std::string(reason)});
  return true;
}

std::vector<std::string> FailureLines::said_once() const {
  std::vector<std::string> said;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const std::string& reason = lines_[i].reason;
    bool repeats = false;  // an equal one before it, or a shorter one that it repeats
    for (std::size_t j = 0; j < lines_.size() && !repeats; ++j) {
      const std::string& other = lines_[j].reason;
      repeats = reason == other ? j < i : reason.find(other) != std::string::npos;
    }
    if (!repeats) said.push_back(lines_[i].text);
  }
  return said;
}

}  // namespace dear::launch
