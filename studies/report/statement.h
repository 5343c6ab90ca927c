#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dear::studies {

// Says what a case says of a statement. Undecided: what was seen agrees with both, such as a mean of few
// seeds. Not comparable: it holds or fails by what nobody published, such as how many micro-batches there
// were.
enum class Judged : std::uint8_t { holds, fails, undecided, not_comparable };

// A statement that somebody makes, beside what was seen, and in how many of the cases looked at it held.
struct Statement {
  std::string says;
  std::string seen;
  int held = 0;
  int cases = 0;
  int undecided = 0;       // of the cases
  int not_comparable = 0;  // likewise
  // "holds", "does not hold", "holds in 1 of 2", "holds in 1 of 4, 2 undecided", "holds in 1 of 4, 2 not
  // comparable", "undecided", "not comparable", "not looked at"
  [[nodiscard]] std::string verdict() const;
};

// Collects the cases of a statement, one after another.
class Cases {
 public:
  explicit Cases(std::string says) : statement_{.says = std::move(says), .seen = {}} {}
  // `seen` may be empty: what is seen in many cases alike is said once, by finish().
  void add(Judged judgement, const std::string& seen = "");
  void add(bool held, const std::string& seen = "") { add(held ? Judged::holds : Judged::fails, seen); }
  // The statement, with more words after what was seen.
  [[nodiscard]] Statement finish(const std::string& after = "") const;

 private:
  Statement statement_;
};

std::string percent(double share);  // "18.5 %"

// A table in Markdown: statement, what was seen, verdict.
std::string table_of(const std::vector<Statement>& statements);
// Says what was seen where nothing could have spoken against it, since something was chosen so that it
// occurs: a list under a heading of its own, without verdicts.
std::string findings_of(const std::vector<std::string>& findings);

}  // namespace dear::studies
