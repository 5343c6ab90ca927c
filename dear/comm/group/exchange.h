#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "dear/comm/group/group.h"

namespace dear {

// Returns every rank's text, by rank. For small things said at start: names, settings.
std::vector<std::string> all_gather_text(const Group& group, const std::string& text);

namespace comm {

// Returns the bytes of every rank, one rank's after another's. Every rank gives equally many.
std::vector<std::byte> all_gather_bytes(const Group& group, std::span<const std::byte> mine);

// Returns every rank's value, by rank.
template <typename Value>
  requires std::is_trivially_copyable_v<Value>
std::vector<Value> all_gather_values(const Group& group, const Value& mine) {
  const std::vector<std::byte> bytes = all_gather_bytes(group, std::as_bytes(std::span(&mine, 1)));
  std::vector<Value> values(static_cast<std::size_t>(group.size()));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// MismatchError, the same on every rank, that `rank` has another `thing` than rank 0; `mine` says in words
// what this rank has. Every rank has to call it.
[[noreturn]] void throw_disagreement(const Group& group, const std::string& thing, int rank,
                                     const std::string& mine);

}  // namespace comm

// Proves that all ranks hold the same text of `thing` ("command"). MismatchError, on every rank, that names
// the first rank that differs from rank 0 and both texts.
void agree(const Group& group, const std::string& thing, const std::string& text);

// As above, for a number, a bool, an enumerator or a struct of them: values are compared, and `describe()`,
// which must tell different values apart, puts this rank's into words only where ranks differ.
template <typename Value, std::invocable Describe>
  requires std::equality_comparable<Value>
void agree(const Group& group, const std::string& thing, const Value& value, const Describe& describe) {
  struct One {  // a vector of bool has no memory to receive into
    Value value;
  };
  const std::vector<One> values = comm::all_gather_values(group, One{value});
  for (int rank = 1; rank < group.size(); ++rank) {
    if (values[static_cast<std::size_t>(rank)].value != values[0].value)
      comm::throw_disagreement(group, thing, rank, describe());
  }
}

}  // namespace dear
