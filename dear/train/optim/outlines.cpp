#include "dear/train/optim/outlines.h"

#include <utility>

#include "dear/train/optim/framed.h"

namespace dear::optim {

// Each tensor with state adds its id, the scalars, the names of the vectors, and an end.
std::string encoded(const Outlines& outlines) {
  std::string text;
  for (std::size_t i = 0; i < outlines.size(); ++i) {
    if (!outlines[i]) continue;
    append(text, std::to_string(i));
    append(text, outlines[i]->scalars);
    for (const std::string& vector : outlines[i]->vectors) append(text, vector);
    append(text, "");
  }
  return text;
}

void decode(std::string_view text, Outlines& outlines) {
  while (!text.empty()) {
    const std::size_t tensor = std::stoul(take_next(text));
    optim::ShardedOptimizer::Outline outline{.vectors = {}, .scalars = take_next(text)};
    for (std::string vector = take_next(text); !vector.empty(); vector = take_next(text))
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
