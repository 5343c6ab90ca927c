#include "dear/train/optim/outlines.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace dear::optim {
namespace {

void add(std::string& text, const std::string& part) {
  const std::uint64_t size = part.size();
  text.append(reinterpret_cast<const char*>(&size), sizeof size);
  text += part;
}

std::string next(std::string_view& text) {
  std::uint64_t size = 0;
  std::memcpy(&size, text.data(), sizeof size);
  std::string part(text.substr(sizeof size, size));
  text.remove_prefix(sizeof size + size);
  return part;
}

}  // namespace

// For each tensor with state: its id, the scalars, the names of the vectors, and an end.
std::string encoded(const Outlines& outlines) {
  std::string text;
  for (std::size_t i = 0; i < outlines.size(); ++i) {
    if (!outlines[i]) continue;
    add(text, std::to_string(i));
    add(text, outlines[i]->scalars);
    for (const std::string& vector : outlines[i]->vectors) add(text, vector);
    add(text, "");
  }
  return text;
}

void decode(std::string_view text, Outlines& outlines) {
  while (!text.empty()) {
    const std::size_t tensor = std::stoul(next(text));
    optim::ShardedOptimizer::Outline outline{.vectors = {}, .scalars = next(text)};
    for (std::string vector = next(text); !vector.empty(); vector = next(text))
      outline.vectors.insert(std::move(vector));
    outlines.at(tensor) = std::move(outline);
  }
}

std::set<std::string> vectors_of(const Outlines& outlines) {
  std::set<std::string> names;
  for (const auto& outline : outlines)
    if (outline) names.insert(outline->vectors.begin(), outline->vectors.end());
  return names;
}

}  // namespace dear::optim
