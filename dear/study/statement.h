#pragma once

#include <string>
#include <vector>

namespace dear::study {

// A statement that somebody makes, beside what was seen, and in how many of the cases looked at it held.
struct Statement {
  std::string says;
  std::string seen;
  int held = 0;
  int cases = 0;
  [[nodiscard]] std::string verdict() const;  // "holds", "does not hold", "holds in 1 of 2", "not looked at"
};

// Collects the cases of a statement, one after another.
class Cases {
 public:
  explicit Cases(std::string says) : statement_{.says = std::move(says), .seen = {}} {}
  // `seen` may be empty: what is seen in many cases alike is said once, by finish().
  void add(bool held, const std::string& seen = "");
  // The statement, with more words after what was seen.
  [[nodiscard]] Statement finish(const std::string& after = "") const;

 private:
  Statement statement_;
};

std::string percent(double share);  // "18.5 %"

// A table in Markdown: statement, what was seen, verdict.
std::string table_of(const std::vector<Statement>& statements);

}  // namespace dear::study
