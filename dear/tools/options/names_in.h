#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dear::cli {

// The names of a table's entries, for a help text: "single, shm, gloo".
template <typename Table>
std::string names_in(const Table& table) {
  std::vector<std::string_view> names;
  for (const auto& entry : table) {
    names.push_back(entry.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace dear::cli
