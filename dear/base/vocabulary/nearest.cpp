#include "dear/base/vocabulary/nearest.h"

#include <algorithm>
#include <limits>

namespace dear {
namespace {

constexpr std::size_t kLongestName = 64;

// The least number of characters to insert, delete and replace that makes one name of the other.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // from the characters of `a` so far to each start of `b`
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& names) {
  if (word.empty() || word.size() > kLongestName) return "";
  std::string_view found;
  std::size_t least = std::numeric_limits<std::size_t>::max() / 2;
  for (const std::string_view name : names) {
    const std::size_t count = edits(word, name);
    if (count >= least) continue;
    least = count;
    found = name;
  }
  return 2 * least <= found.size() + 1 ? found : std::string_view();
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names,
                         std::string_view otherwise) {
  const std::string_view found = nearest(word, names);
  return found.empty() ? std::string(otherwise) : ", did you mean " + std::string(found) + "?";
}

std::string no_such(std::string_view kind, std::string_view name,
                    const std::vector<std::string_view>& names) {
  std::string text = "there is no " + std::string(kind) + " '" + std::string(name) + "'";
  text += did_you_mean(name, names) + " choose one of ";
  for (const std::string_view& one : names)
    text += std::string(&one == &names.front() ? "" : ", ") + std::string(one);
  return text;
}

}  // namespace dear
