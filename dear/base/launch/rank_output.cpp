#include "dear/base/launch/rank_output.h"

#include <algorithm>
#include <utility>

namespace dear::launch {

RankOutput::RankOutput(std::vector<std::string> prefixes) {
  for (std::string& prefix : prefixes) writers_.push_back({.prefix = std::move(prefix)});
}

void RankOutput::feed(std::size_t number, std::string_view bytes, SteadyTime now) {
  Writer& writer = writers_.at(number);
  writer.since = now;
  while (!bytes.empty()) {
    const bool returned = writer.partial.ends_with('\r');
    if (returned) writer.partial.pop_back();
    if (bytes.front() == '\n') {
      show(writer, returned ? "\r\n" : "\n");
      bytes.remove_prefix(1);
      continue;
    }
    if (returned) show(writer, "\r");
    std::size_t length = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (length < bytes.size() && bytes[length] == '\r') ++length;  // a newline may follow
    length = std::min(length, kLongestLine - writer.partial.size());
    writer.partial.append(bytes.substr(0, length));
    bytes.remove_prefix(length);
    if (writer.partial.size() == kLongestLine) show(writer, "\n");
  }
}

void RankOutput::written(std::size_t bytes) {
  written_ += bytes;
  if (written_ < pending_.size() && written_ < kLongestLine) return;
  pending_.erase(0, written_);
  written_ = 0;
}

void RankOutput::show(Writer& writer, std::string_view end) {
  if (in_line_ != nullptr && in_line_ != &writer) {
    pending_ += '\n';
    in_line_->continues = false;
  }
  if (!writer.continues) pending_ += writer.prefix;
  pending_.append(writer.partial).append(end);
  writer.partial.clear();
  writer.continues = end.empty();
  in_line_ = end.ends_with('\n') ? nullptr : &writer;
}

std::optional<SteadyTime> RankOutput::show_held_back(SteadyTime now) {
  std::optional<SteadyTime> next;
  for (Writer& writer : writers_) {
    if (writer.partial.empty()) continue;
    const SteadyTime due = writer.since + kHeldBack;
    if (due > now) {
      next = next ? std::min(*next, due) : due;
    } else if (writer.partial.ends_with('\r')) {
      writer.partial.pop_back();
      show(writer, "\r");
    } else {
      show(writer, "");
    }
  }
  return next;
}

void RankOutput::finish() {
  for (Writer& writer : writers_)
    if (!writer.partial.empty() || writer.continues) show(writer, "\n");
  if (in_line_ != nullptr) pending_ += '\n';
  in_line_ = nullptr;
}

}  // namespace dear::launch
