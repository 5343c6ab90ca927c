#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dear::launch {

// A FailureLines keeps the lines in which ranks of our own command say how they fail: "dear train: rank 1:
// cannot ...", or without the rank. Ranks that fail alike say the same, and those that lose a peer repeat
// what it said; each is to be read once.
class FailureLines {
 public:
  explicit FailureLines(std::string who) : who_(std::move(who)) {}

  // Keeps a line of a rank, without its end, and returns whether it is such a line.
  bool take(std::string_view line);
  // The lines that no other one says already, in the order in which they came.
  [[nodiscard]] std::vector<std::string> said_once() const;

 private:
  struct Line {
    std::string text;
    std::string reason;  // behind the rank
  };
  std::string who_;  // "dear train"
  std::vector<Line> lines_;
};

}  // namespace dear::launch
