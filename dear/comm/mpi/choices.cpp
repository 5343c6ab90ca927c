#include "dear/comm/mpi/choices.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/units.h"

namespace dear::backends {
namespace {

constexpr std::int64_t kSmallest = 64;

bool same(const message_programs::AlgorithmChoice& a, const message_programs::AlgorithmChoice& b) {
  return a.algorithm == b.algorithm && a.then == b.then && a.segment_bytes == b.segment_bytes;
}

}  // namespace

bool is_program(const message_programs::AlgorithmChoice& choice) { return choice.algorithm != kMpisOwn; }

std::string describe(const message_programs::AlgorithmChoice& choice) {
  if (!is_program(choice)) {
    return choice.algorithm == kMpisOwn ? "MPI's own" : choice.algorithm;
  }
  return fmt::format("{}{} in segments of {}", choice.algorithm,
                     choice.then.empty() ? "" : " and " + choice.then, format_bytes(choice.segment_bytes));
}

std::int64_t largest_of(int size_class) { return kSmallest << (2 * size_class); }

int size_class_of(std::int64_t bytes) {
  int size_class = 0;
  while (size_class < kSizeClasses - 1 && bytes > largest_of(size_class)) {
    ++size_class;
  }
  return size_class;
}

void Choices::set(Collective collective, int size_class, message_programs::AlgorithmChoice choice) {
  by_operation_[collective].at(static_cast<std::size_t>(size_class)) = std::move(choice);
}

const message_programs::AlgorithmChoice* Choices::find(Collective collective, std::int64_t bytes) const {
  const auto found = by_operation_.find(collective);
  if (found == by_operation_.end()) {
    return nullptr;
  }
  const auto& choice = found->second[static_cast<std::size_t>(size_class_of(bytes))];
  return choice ? &*choice : nullptr;
}

std::string Choices::summary() const {
  std::vector<std::string> operations;
  for (const auto& [collective, choices] : by_operation_) {
    std::vector<std::string> parts;
    for (int i = 0; i < kSizeClasses; ++i) {
      const auto& choice = choices[static_cast<std::size_t>(i)];
      const auto& next = choices[static_cast<std::size_t>(std::min(i + 1, kSizeClasses - 1))];
      if (choice && (i + 1 == kSizeClasses || !next || !same(*choice, *next))) {
        parts.push_back(i + 1 == kSizeClasses
                            ? describe(*choice)
                            : fmt::format("{} up to {}", describe(*choice), format_bytes(largest_of(i))));
      }
    }
    operations.push_back(fmt::format("{}: {}", name_of(collective), fmt::join(parts, ", ")));
  }
  return fmt::format("{}", fmt::join(operations, "; "));
}

}  // namespace dear::backends
