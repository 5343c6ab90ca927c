#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/tools/bench_collectives/measured_operation.h"

// The messages between the coordinator of a benchmark and its ranks, one JSON object each. A rank connects
// and says hello, is welcomed, opens its library and says ready. From then on each command has one reply.
namespace dear::bench_collectives {

struct Command {
  enum class Kind : std::uint8_t { welcome, measure, verify, end };
  Kind kind = Kind::end;
  std::int64_t prepare_bytes = 0;                         // welcome: of the largest vector there will be
  std::int64_t output_bytes = 0;                          // welcome: of the output; 0 for none
  MeasuredOperation operation = MeasuredOperation::pair;  // measure, verify
  DType dtype = DType::f32;                               // measure, verify
  std::int64_t bytes = 0;                                 // measure, verify: of a rank's vector
  int unmeasured = 0;                                     // measure: repetitions before those that count
  int repetitions = 0;                                    // measure
  int batch = 1;                                          // measure: operations in a repetition
  bool computing = false;                                 // measure: all ranks compute meanwhile
  bool touching = false;                                  // measure: with writing before and reading after
  double late_seconds = 0;                                // measure: rank 0 begins so much after the others
  std::uint64_t seed = 0;                                 // measure, verify: see Call
  friend bool operator==(const Command&, const Command&) = default;
};

// A repetition on one rank, on the steady clock of the host.
struct Interval {
  double begin_seconds = 0;
  double end_seconds = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

struct Reply {
  enum class Kind : std::uint8_t { hello, ready, measured, right, wrong, refused, failed };
  Kind kind = Kind::failed;
  int rank = 0;                       // hello
  int size = 0;                       // hello
  std::string text{};                 // ready: the library's description; wrong, refused, failed: why
  std::vector<Interval> intervals{};  // measured: as many as repetitions
  std::vector<double> slowdowns{};    // measured: of the computation in each; empty when nothing computed
  std::vector<double>
      processor_shares{};       // measured: of a core, by this process; empty when no rank was late
  std::int64_t sent_bytes = 0;  // right: Collectives::sent_bytes()
  friend bool operator==(const Reply&, const Reply&) = default;
};

std::string to_text(const Command& command);
std::string to_text(const Reply& reply);
// TransportError for any other text.
Command parse_command(std::string_view text);
Reply parse_reply(std::string_view text);

}  // namespace dear::bench_collectives
