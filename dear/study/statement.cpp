#include "dear/study/statement.h"

#include <fmt/format.h>

namespace dear::study {

std::string Statement::verdict() const {
  if (cases == 0) return "not looked at";
  if (held == cases) return "holds";
  if (held == 0) return "does not hold";
  return fmt::format("holds in {} of {}", held, cases);
}

void Cases::add(bool held, const std::string& seen) {
  statement_.held += held ? 1 : 0;
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

}  // namespace dear::study
