#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "dear/comm/group/request.h"
#include "dear/comm/message_programs/choice.h"

namespace dear::backends {

// Stands in the place of an algorithm's name: MPI itself does the collective.
inline constexpr const char* kMpisOwn = "mpi";
bool is_program(const message_programs::AlgorithmChoice& choice);  // not that
std::string describe(
    const message_programs::AlgorithmChoice& choice);  // "ring in segments of 64 KiB", "MPI's own"

// Sizes of vectors are told apart by powers of four: class k holds those of up to largest_of(k) bytes.
inline constexpr int kSizeClasses = 11;
std::int64_t largest_of(int size_class);  // 64 B, 256 B, ..., 64 MiB
int size_class_of(std::int64_t bytes);    // the last one holds all that are larger

// A Choices holds the algorithm that was chosen for each collective and size; it is the same on all ranks.
class Choices {
 public:
  void set(Collective collective, int size_class, message_programs::AlgorithmChoice choice);
  // The choice for a collective of this size; nullptr where there is none.
  [[nodiscard]] const message_programs::AlgorithmChoice* find(Collective collective,
                                                              std::int64_t bytes) const;
  [[nodiscard]] std::string summary() const;  // "all-gather: pairwise in whole blocks up to 4 KiB, ..."

 private:
  using BySize = std::array<std::optional<message_programs::AlgorithmChoice>, kSizeClasses>;
  std::map<Collective, BySize> by_operation_;
};

}  // namespace dear::backends
