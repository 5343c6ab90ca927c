#include "dear/systems/rounds/fragments.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::systems::rounds {
namespace {

// By bin, the numbers dealt to it, ascending.
std::vector<std::vector<std::size_t>> deal(const std::vector<std::int64_t>& elements,
                                           std::vector<std::size_t> numbers, std::size_t bins) {
  std::stable_sort(numbers.begin(), numbers.end(),
                   [&](std::size_t a, std::size_t b) { return elements[a] > elements[b]; });
  std::vector<std::vector<std::size_t>> dealt(bins);
  std::vector<std::int64_t> load(bins, 0);
  for (const std::size_t number : numbers) {
    const auto least = static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    dealt[least].push_back(number);
    load[least] += elements[number];
  }
  for (std::vector<std::size_t>& one : dealt) std::sort(one.begin(), one.end());
  return dealt;
}

}  // namespace

std::vector<std::size_t> Fragment::tensors() const {
  std::vector<std::size_t> all;
  for (const std::vector<std::size_t>& part : parts) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<Fragment> deal(const std::vector<std::int64_t>& elements, std::int64_t fragments, int inside) {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < elements.size(); ++i)
    if (elements[i] > 0) numbers.push_back(i);
  if (std::ssize(numbers) < fragments)
    throw ConfigError(
        fmt::format("the model has {} trained tensors, which cannot be dealt to {} fragments: give fewer "
                    "fragments",
                    numbers.size(), fragments));
  std::vector<Fragment> result;
  for (std::vector<std::size_t>& tensors : deal(elements, numbers, static_cast<std::size_t>(fragments)))
    result.push_back({deal(elements, std::move(tensors), static_cast<std::size_t>(inside))});
  return result;
}

std::int64_t turn_at(std::int64_t position, std::int64_t every, std::int64_t fragments) {
  const std::int64_t stride = every / fragments;
  if (position <= 0 || position % stride != 0) return -1;
  return (position / stride - 1) % fragments;
}

}  // namespace dear::systems::rounds
