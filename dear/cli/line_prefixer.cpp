#include "dear/cli/line_prefixer.h"

#include <algorithm>

namespace dear::cli {

std::string LinePrefixer::feed(std::string_view bytes) {
  std::string lines;
  while (!bytes.empty()) {
    const std::size_t room = kLongestLine - partial_.size();
    const std::size_t newline = bytes.substr(0, room).find('\n');
    const std::size_t length = std::min({newline, room, bytes.size()});
    partial_.append(bytes.substr(0, length));
    bytes.remove_prefix(length);
    if (newline != std::string_view::npos) {
      bytes.remove_prefix(1);
    }
    if (newline != std::string_view::npos || partial_.size() == kLongestLine) {
      lines.append(prefix_).append(partial_).append(1, '\n');
      partial_.clear();
    }
  }
  return lines;
}

std::string LinePrefixer::finish() { return partial_.empty() ? std::string() : feed("\n"); }

}  // namespace dear::cli
