#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "dear/base/dtype.h"
#include "dear/collective/shard.h"
#include "dear/measure/measured_operation.h"

namespace dear::measure {

// One operation on vectors of so many elements.
struct Work {
  MeasuredOperation operation = MeasuredOperation::pair;
  DType dtype = DType::f32;
  std::int64_t count = 0;
};

// What carries collectives in a rank of the bench: a backend of DeAR's or a rival. Used by one thread.
class Engine {
 public:
  virtual ~Engine() = default;

  [[nodiscard]] virtual std::string description() const = 0;
  // Why it cannot do this at all ("MPI adds no fp16"); "" when it can.
  [[nodiscard]] virtual std::string refusal(MeasuredOperation, DType) const { return ""; }
  // Counts must be a multiple of this.
  [[nodiscard]] virtual int granularity(MeasuredOperation) const { return 1; }
  // The part of a vector of `count` elements that is `rank`'s between reduce-scatter and all-gather.
  [[nodiscard]] virtual Range shard(const Work& work, int rank) const = 0;

  // Where that part of this rank lies after a reduce-scatter.
  [[nodiscard]] virtual const std::byte* reduced_shard(const Work& work) const = 0;

  // Collective, once. Afterwards data() and output() have that many bytes, until the engine is gone. Only an
  // all-to-all needs an output.
  virtual void prepare(std::int64_t bytes, std::int64_t output_bytes) = 0;
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual std::byte* output() const = 0;
  // Where the whole vector stands after an operation that ends with a gathering.
  [[nodiscard]] virtual const std::byte* gathered() const { return data(); }

  // On the vector in data(), in place but for the shard of a reduce-scatter; an all-to-all and a plain copy
  // write to output() instead. Returns when this rank's result is complete.
  virtual void run(const Work& work) = 0;
  // So many times.
  virtual void run_batch(const Work& work, int batch) {
    for (int i = 0; i < batch; ++i) run(work);
  }
  // Once, for a look at the result: with what else belongs to it, but is not measured.
  virtual void run_to_verify(const Work& work) { run_batch(work, 1); }
};

struct EngineOptions {
  std::chrono::duration<double> timeout;  // for each wait
  bool reproducible = false;              // of DeAR's backends: InitOptions::reproducible
  int ahead = 1;  // of DeAR's backends: a batch has so many issued before it waits for the first of them
};

}  // namespace dear::measure
