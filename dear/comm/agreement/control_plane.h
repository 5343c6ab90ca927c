#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "dear/comm/agreement/call.h"
#include "dear/comm/group/group.h"

// Ranks tell each other values beside the collectives of their schedule: in a fixed layout, behind a header
// that says what they are. All ranks call a function of this file together, while no gradients are on their
// way.
namespace dear::agreement {

enum class Subject : std::uint32_t {
  call,
  layer_order,
  profile,
  cached_buckets,
  first_buckets,
  state,
  nonfinite,
  decision
};

// Returns the error itself, but a MismatchError with a text that adds what to do.
std::exception_ptr with_remedy(const std::exception_ptr& error);

// Runs `check`. When it throws on one rank, every rank throws at once: that rank the error itself, the others
// a ConfigError with its text.
void check_together(const Group& group, const std::function<void()>& check);

// Returns every rank's bytes, by rank; they are elements of `element_bytes`. Throws a MismatchError on every
// rank when a rank exchanges something else (it made another call) or runs another version; the text names
// the first rank that differs from rank 0.
std::vector<std::string> exchange(const Group& group, Subject subject, std::size_t element_bytes,
                                  std::span<const std::byte> mine);

// Returns every rank's values, by rank.
template <typename T>
  requires std::is_trivially_copyable_v<T>
std::vector<std::vector<T>> all_gather_values(const Group& group, Subject subject,
                                              const std::vector<T>& mine) {
  std::vector<std::vector<T>> all;
  for (const std::string& bytes : exchange(group, subject, sizeof(T), std::as_bytes(std::span(mine)))) {
    std::vector<T>& values = all.emplace_back(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return all;
}

// Returns rank 0's values on every rank. The others' values travel too, so let them be few or none.
template <typename T>
std::vector<T> of_rank_0(const Group& group, Subject subject, const std::vector<T>& mine) {
  return all_gather_values(group, subject, mine).front();
}

// The group itself for the first DataParallel that is made on it, a duplicate for later ones: each issues
// collectives from threads of its own. All ranks together.
[[nodiscard]] inline Group own_group(const Group& group) {
  return group.size() == 1 || group.claim() ? group : group.duplicate();
}

// Proves that every rank makes this call after as many steps. Throws a MismatchError on every rank when one
// does not, also when it issues a collective of its schedule instead.
void meet(const Group& group, Call call, std::int64_t steps);

}  // namespace dear::agreement
