#pragma once

#include <string>
#include <string_view>

namespace dear::cli {

// Turns the bytes that a rank writes into whole lines with a prefix, so that lines of several ranks never
// mix.
class LinePrefixer {
 public:
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // The lines that `bytes` complete; a line longer than kLongestLine is cut there.
  std::string feed(std::string_view bytes);
  // The last line, completed, when it lacked its newline.
  std::string finish();

  static constexpr std::size_t kLongestLine = 1 << 20;

 private:
  std::string prefix_;
  std::string partial_;
};

}  // namespace dear::cli
