#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "dear/base/vocabulary/dtype.h"
#include "dear/comm/backends/init.h"
#include "dear/comm/group/shard.h"
#include "dear/tools/bench_collectives/measured_operation.h"

namespace dear::bench_collectives {

// One call of an operation: the vector of each rank has `count` elements.
struct Call {
  MeasuredOperation operation = MeasuredOperation::pair;
  DType dtype = DType::f32;
  std::int64_t count = 0;
  std::uint64_t seed = 0;  // of an all-to-all-v's sizes: uneven_rows()
};

// The collectives of a library in one rank of a benchmark. One thread uses them.
class Collectives {
 public:
  virtual ~Collectives() = default;

  [[nodiscard]] virtual std::string description() const = 0;
  // Why the library has no such operation ("MPI has no sums of fp16"); "" when it has.
  [[nodiscard]] virtual std::string refusal(MeasuredOperation, DType) const { return ""; }
  // Call::count must be a multiple of this.
  [[nodiscard]] virtual int granularity(MeasuredOperation) const { return 1; }
  // The part of a vector of `count` elements that is `rank`'s between reduce-scatter and all-gather.
  [[nodiscard]] virtual Range shard(const Call& call, int rank) const = 0;

  // Where the shard of this rank lies after a reduce-scatter.
  [[nodiscard]] virtual const std::byte* reduced_shard(const Call& call) const = 0;

  // Allocates data() and output() of so many bytes, for the life of this object. Every rank calls it once.
  // Only what has_output() needs an output.
  virtual void prepare(std::int64_t bytes, std::int64_t output_bytes) = 0;
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual std::byte* output() const = 0;
  // Where the whole vector lies after an operation that ends with an all-gather.
  [[nodiscard]] virtual const std::byte* gathered() const { return data(); }

  // Runs the operation on the vector in data(), in place save for the shard of a reduce-scatter. An
  // all-to-all(-v) and a plain copy write to output(). Returns when this rank's result is complete.
  virtual void run(const Call& call) = 0;
  // The bytes that the last all-to-all-v sent from this rank to others, as what carried them counted.
  [[nodiscard]] virtual std::int64_t sent_bytes() const { return 0; }
  // Runs the operation `batch` times.
  virtual void run_batch(const Call& call, int batch) {
    for (int i = 0; i < batch; ++i) run(call);
  }
  // Runs the operation once, with the unmeasured work that its result needs.
  virtual void run_to_verify(const Call& call) { run_batch(call, 1); }
};

// How a library is opened.
struct LibraryOptions {
  std::chrono::duration<double> timeout{};  // for each wait on the peers
  bool reproducible = false;                // of DeAR's backends: InitOptions::reproducible
  int ahead = 1;  // of DeAR's backends: operations of a batch that are issued before the first is waited for
  std::optional<GridSettings> grid{};  // of DeAR's backends: InitOptions::grid
};

}  // namespace dear::bench_collectives
