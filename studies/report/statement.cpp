#include "studies/report/statement.h"

#include <fmt/format.h>

namespace dear::studies {

std::string Statement::verdict() const {
  if (cases == 0) return "not looked at";
  if (held == cases) return "holds";
  if (undecided == cases) return "undecided";
  if (undecided > 0) return fmt::format("holds in {} of {}, {} undecided", held, cases, undecided);
  if (held == 0) return "does not hold";
  return fmt::format("holds in {} of {}", held, cases);
}

void Cases::add(Judged judgement, const std::string& seen) {
  statement_.held += judgement == Judged::holds ? 1 : 0;
  statement_.undecided += judgement == Judged::undecided ? 1 : 0;
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
