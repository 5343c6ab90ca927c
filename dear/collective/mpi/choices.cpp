#include "dear/collective/mpi/choices.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "dear/base/error.h"
#include "dear/base/units.h"

namespace dear::collective {
namespace {

constexpr std::int64_t kSmallest = 64;
// Of the file; another number, another form, or another way of measuring.
constexpr int kForm = 7;
constexpr std::array kOperations = {Operation::barrier,    Operation::reduce_scatter, Operation::all_gather,
                                    Operation::all_reduce, Operation::broadcast,      Operation::all_to_all};

std::optional<Operation> operation_called(const std::string& name) {
  const auto* const found = std::find_if(kOperations.begin(), kOperations.end(),
                                         [&](Operation one) { return name_of(one) == name; });
  return found != kOperations.end() ? std::optional(*found) : std::nullopt;
}

// Of the ways for any number of ranks and order: what a file names must exist.
bool is_known(Operation operation, const Way& way) {
  if (!is_program(way)) {
    return true;
  }
  const std::vector<Way> known =
      ways({.operation = operation, .bytes = largest_of(0), .ranks = 2, .exact = false});
  return way.segment_bytes > 0 && std::any_of(known.begin(), known.end(), [&](const Way& one) {
           return one.algorithm == way.algorithm && one.then == way.then;
         });
}

bool same(const Way& a, const Way& b) {
  return a.algorithm == b.algorithm && a.then == b.then && a.segment_bytes == b.segment_bytes;
}

}  // namespace

bool is_program(const Way& way) { return way.algorithm != kMpisOwn; }

std::string describe(const Way& way) {
  if (!is_program(way)) {
    return way.algorithm == kMpisOwn ? "MPI's own" : way.algorithm;
  }
  return fmt::format("{}{} in segments of {}", way.algorithm, way.then.empty() ? "" : " and " + way.then,
                     format_bytes(way.segment_bytes));
}

std::int64_t largest_of(int size_class) { return kSmallest << (2 * size_class); }

int size_class_of(std::int64_t bytes) {
  int size_class = 0;
  while (size_class < kSizeClasses - 1 && bytes > largest_of(size_class)) {
    ++size_class;
  }
  return size_class;
}

void Choices::set(Operation operation, int size_class, Way way) {
  by_operation_[operation].at(static_cast<std::size_t>(size_class)) = std::move(way);
}

const Way* Choices::find(Operation operation, std::int64_t bytes) const {
  const auto found = by_operation_.find(operation);
  if (found == by_operation_.end()) {
    return nullptr;
  }
  const auto& way = found->second[static_cast<std::size_t>(size_class_of(bytes))];
  return way ? &*way : nullptr;
}

std::string Choices::summary() const {
  std::vector<std::string> operations;
  for (const auto& [operation, ways] : by_operation_) {
    std::vector<std::string> parts;
    for (int i = 0; i < kSizeClasses; ++i) {
      const auto& way = ways[static_cast<std::size_t>(i)];
      const auto& next = ways[static_cast<std::size_t>(std::min(i + 1, kSizeClasses - 1))];
      if (way && (i + 1 == kSizeClasses || !next || !same(*way, *next))) {
        parts.push_back(i + 1 == kSizeClasses
                            ? describe(*way)
                            : fmt::format("{} up to {}", describe(*way), format_bytes(largest_of(i))));
      }
    }
    operations.push_back(fmt::format("{}: {}", name_of(operation), fmt::join(parts, ", ")));
  }
  return fmt::format("{}", fmt::join(operations, "; "));
}

std::string Choices::format(const std::string& key) const {
  nlohmann::json ways = nlohmann::json::array();
  for (const auto& [operation, by_size] : by_operation_) {
    for (int i = 0; i < kSizeClasses; ++i) {
      if (const auto& way = by_size[static_cast<std::size_t>(i)]) {
        ways.push_back({{"operation", name_of(operation)},
                        {"size_class", i},
                        {"algorithm", way->algorithm},
                        {"then", way->then},
                        {"segment_bytes", way->segment_bytes}});
      }
    }
  }
  return nlohmann::json{{"dear-mpi-choices", kForm}, {"key", key}, {"ways", ways}}.dump(1) + "\n";
}

std::optional<Choices> Choices::parse(const std::string& text, const std::string& key) {
  try {
    const auto file = nlohmann::json::parse(text);
    if (file.at("dear-mpi-choices") != kForm || file.at("key") != key) {
      return std::nullopt;
    }
    Choices choices;
    for (const auto& entry : file.at("ways")) {
      const auto operation = operation_called(entry.at("operation").get<std::string>());
      const auto size_class = entry.at("size_class").get<std::int64_t>();
      Way way{.algorithm = entry.at("algorithm").get<std::string>(),
              .then = entry.at("then").get<std::string>(),
              .segment_bytes = entry.at("segment_bytes").get<std::int64_t>()};
      if (!operation || size_class < 0 || size_class >= kSizeClasses || !is_known(*operation, way)) {
        return std::nullopt;
      }
      choices.set(*operation, static_cast<int>(size_class), std::move(way));
    }
    return choices;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace dear::collective
