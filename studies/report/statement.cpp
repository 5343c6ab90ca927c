#include "studies/report/statement.h"

#include <fmt/format.h>

namespace dear::studies {

std::string Statement::verdict() const {
  if (cases == 0) return "not looked at";
  if (held == cases) return "holds";
  if (undecided == cases) return "undecided";
  if (not_comparable == cases) return "not comparable";
  if (held + undecided + not_comparable == 0) return "does not hold";
  std::string text = fmt::format("holds in {} of {}", held, cases);
  if (undecided > 0) text += fmt::format(", {} undecided", undecided);
  if (not_comparable > 0) text += fmt::format(", {} not comparable", not_comparable);
  return text;
}

void Cases::add(Judged judgement, const std::string& seen) {
  statement_.held += judgement == Judged::holds ? 1 : 0;
  statement_.undecided += judgement == Judged::undecided ? 1 : 0;
  statement_.not_comparable += judgement == Judged::not_comparable ? 1 : 0;
  ++statement_.cases;
  if (seen.empty()) return;
  statement_.seen += (statement_.seen.empty() ? "" : "; ") + seen;
}

Statement Cases::finish(const std::string& after) const {
  Statement statement = statement_;
  statement.seen += after;
  return statement;
}

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

std::string table_of(const std::vector<Statement>& statements) {
  std::string text = "| statement | what we saw | verdict |\n|---|---|---|\n";
  for (const Statement& one : statements)
    text += fmt::format("| {} | {} | {} |\n", one.says, one.seen, one.verdict());
  return text;
}

std::string findings_of(const std::vector<std::string>& findings) {
  std::string text =
      "## Findings\n\nWhat was seen where nothing could have spoken against it, since something was chosen "
      "so "
      "that it occurs. No verdict is given on it.\n\n";
  for (const std::string& one : findings) text += fmt::format("- {}\n", one);
  return text + "\n";
}

}  // namespace dear::studies
