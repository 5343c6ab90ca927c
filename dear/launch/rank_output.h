#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/deadline.h"

namespace dear::launch {

// RankOutput merges what several ranks write to one stream (standard output, or standard error): line by line
// with a prefix, so that lines of two ranks never mix. A line is passed on when it is whole; one that ends by
// a carriage return, as those of progress bars do, is whole too. What stays without an end for kHeldBack is
// shown as it is: it goes on where it stopped, unless another rank has written meanwhile, when it goes on in
// a line of its own.
class RankOutput {
 public:
  explicit RankOutput(std::vector<std::string> prefixes);  // by writer

  // A line longer than kLongestLine is cut there.
  void feed(std::size_t writer, std::string_view bytes, SteadyTime now);
  // Shows what was held back long enough; when to come again, if there is more of it.
  std::optional<SteadyTime> show_held_back(SteadyTime now);
  // Ends the unfinished line of each writer by a newline: no more will come.
  void finish();

  // The text that is to be written next, and how much of its beginning was written.
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
