#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "dear/tools/bench_collectives/collectives.h"
#include "dear/tools/bench_collectives/protocol.h"
#include "dear/tools/bench_collectives/test_pattern.h"

namespace dear::bench_collectives {

// Carries out commands in one rank of a library, on its collectives.
class RankRunner {
 public:
  struct Rank {
    int rank = 0;
    int size = 1;
    bool only_copies = false;       // see Library
    std::function<void()> barrier;  // of all ranks; repetitions begin behind it
  };
  // The collectives outlive this.
  RankRunner(Collectives& collectives, Rank rank);

  // Allocates for the largest vector and output. Every rank calls it once, before the first answer().
  void prepare(std::int64_t bytes, std::int64_t output_bytes);
  // Carries out a command to measure or to verify. Throws the errors of the library.
  Reply answer(const Command& command);

 private:
  [[nodiscard]] std::int64_t count_of(const Command& command) const;
  Reply measure(const Command& command, const Call& call);
  void run_touching(const Call& call, int batch);
  Reply measure_while_computing(const Command& command, const Call& call);
  Reply measure_waiting(const Command& command, const Call& call);
  Reply verify(const Call& call);
  [[nodiscard]] std::optional<std::string> first_difference(const TestPattern& pattern,
                                                            const Call& call) const;

  Collectives& collectives_;
  Rank rank_;
};

}  // namespace dear::bench_collectives
