#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/error.h"

// Names that were mistyped.
namespace dear {

// The name that is most like `word`, by characters to insert, delete and replace; "" where none is so like
// that it may have been meant.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& names);

// For a message: ", did you mean NAME?" where one may have been meant, else `otherwise`, as in "there is no
// model 'vgg6', did you mean vgg16? choose one of ...".
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names,
                         std::string_view otherwise = ";");

// "there is no model 'vgg6', did you mean vgg16? choose one of resnet50, vgg16"; `kind` is "model".
std::string no_such(std::string_view kind, std::string_view name, const std::vector<std::string_view>& names);

// Returns the entry of a table that has this name; ConfigError with no_such().
template <typename Table>
const auto& find_named(const Table& table, std::string_view name, std::string_view kind) {
  std::vector<std::string_view> names;
  for (const auto& entry : table) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw ConfigError(no_such(kind, name, names));
}

}  // namespace dear
