#include "dear/tools/options/table.h"

#include <algorithm>

#include <fmt/format.h>

namespace dear::cli {

Table::Table(std::vector<std::string> header, Options options)
    : rows_{std::move(header)}, options_(options) {}

void Table::add(std::vector<std::string> row) {
  row.resize(rows_.front().size());
  rows_.push_back(std::move(row));
}

std::string Table::to_string() const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      const bool left = column < options_.left_columns;
      line += column == 0 ? "" : "  ";
      line += left ? fmt::format("{:<{}}", row[column], widths[column])
                   : fmt::format("{:>{}}", row[column], widths[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace dear::cli
