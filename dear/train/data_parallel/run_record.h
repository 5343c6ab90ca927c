#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/base/vocabulary/say.h"
#include "dear/comm/buckets/sparse_gradients.h"
#include "dear/train/autograd/layer_clock.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/engine/engine.h"
#include "dear/workload/layers/workload.h"

namespace dear::train {

// Keeps what a run looked like on this rank, over all its engines. `engine` is the one in force in every
// method. For the program's thread.
class RunRecord {
 public:
  RunRecord(int rank, Say say) : rank_(rank), sparse_(rank, std::move(say)) {}
  [[nodiscard]] autograd::LayerClock& clock() { return clock_; }
  [[nodiscard]] buckets::SparseGradients& sparse() { return sparse_; }

  // The engine is about to be replaced. Keep::spans keeps what it recorded for spans() and measured().
  enum class Keep : std::uint8_t { nothing, spans };
  void engine_ends(const Engine& engine, Keep keep);
  // Adds a span, from `begin_seconds` until now, for the change to this engine.
  void engine_replaced(const Engine& engine, const std::string& why, double begin_seconds);
  // Other layers are trained from now on: what was measured of those before counts no more.
  void layers_end();
  void step_given_up() { ++given_up_; }
  [[nodiscard]] double exposed_seconds(const Engine* engine) const;
  // Adds the spans of a part beside the engine to spans(), until `part` is removed.
  using Spans = std::function<std::vector<Span>()>;
  void add_part(const void* part, Spans spans) { parts_[part] = std::move(spans); }
  void remove_part(const void* part);  // its spans so far stay

  [[nodiscard]] DataParallelStatistics statistics(const Engine* engine) const;  // null before the first step
  [[nodiscard]] std::int64_t commits(const Engine* engine) const;     // steps that were given up included
  [[nodiscard]] std::vector<Span> spans(const Engine& engine) const;  // in order of their begin
  [[nodiscard]] std::int64_t bytes(const Engine* engine) const;       // of what is kept
  // Returns the engine's workload with the median times.
  [[nodiscard]] Workload measured(const Engine& engine, int ranks) const;

 private:
  // Seconds by iteration, whichever buckets were in force.
  struct Measurements {
    std::map<LayerId, autograd::ByIteration> forward, backward;
    autograd::ByIteration updates;
    bool sharded = false;  // updates were of shards
  };
  void add_measurements(const Engine& engine, Measurements& all) const;
  [[nodiscard]] std::vector<Span> without_parts(const Engine& engine) const;

  int rank_;
  autograd::LayerClock clock_;
  buckets::SparseGradients sparse_;
  std::int64_t given_up_ = 0;
  // What the engines before have recorded.
  DataParallelStatistics earlier_{};
  std::vector<Span> earlier_spans_;
  std::map<const void*, Spans> parts_;
  Measurements earlier_measurements_;
};

}  // namespace dear::train
