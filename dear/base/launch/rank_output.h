#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/deadline.h"

namespace dear::launch {

// RankOutput merges what several ranks write to one stream (standard output, or standard error) line by line,
// with a prefix, so that lines of two ranks never mix. A line is passed on when it ends, by a newline or by
// the carriage return of a progress bar. A line that has not ended after kHeldBack is shown as far as it is;
// its rest follows on the same line, or on a new one where another rank has written meanwhile.
class RankOutput {
 public:
  explicit RankOutput(std::vector<std::string> prefixes);  // by writer

  // Takes output of a writer. A line longer than kLongestLine is cut there.
  void feed(std::size_t writer, std::string_view bytes, SteadyTime now);
  // Shows lines that were held back for kHeldBack. Returns when the next one will have been, if there is one.
  std::optional<SteadyTime> show_held_back(SteadyTime now);
  // Ends the unfinished line of each writer by a newline. No other call follows.
  void finish();

  // The text that is to be written next. written() takes off as much of its beginning as was written.
  [[nodiscard]] std::string_view pending() const { return std::string_view(pending_).substr(written_); }
  void written(std::size_t bytes);

  static constexpr std::size_t kLongestLine = 1 << 20;
  static constexpr auto kHeldBack = std::chrono::milliseconds(100);

 private:
  struct Writer {
    std::string prefix;
    std::string partial;     // of its line, not shown yet
    bool continues = false;  // the beginning of this line was shown
    SteadyTime since{};      // the last byte
  };
  void show(Writer& writer, std::string_view end);

  std::vector<Writer> writers_;
  std::string pending_;
  std::size_t written_ = 0;    // of it
  Writer* in_line_ = nullptr;  // whose line the stream is in the midst of
};

}  // namespace dear::launch
