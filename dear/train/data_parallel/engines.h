#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dear/comm/group/buffer.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/engine/engine.h"

namespace dear::train {

class Trainer;

// Makes the engine of a training, and replaces it by one of other buckets: regroup(), and buckets that are
// chosen while training. What an engine remembers goes in and out here: the optimiser's state, the memory of
// a compression. All ranks together.
class Engines {
 public:
  explicit Engines(Trainer& own) : own_(own) {}

  // Ranks agree on one copy of the parameters and on a compression, before the first engine.
  void agree_on_copies();
  void agree_on_compression();
  void agree_on_shards();  // DataParallelOptions::shards
  [[nodiscard]] std::unique_ptr<Engine> make_engine(const View& decision = {});
  void make_first_engine();
  void regroup(Fusion fusion);
  void require_shares() const;  // ConfigError where shards are equal always
  void reshard(const std::vector<double>& weights);
  // Cuts shards anew; weights are the same on every rank. Between two steps, while nothing is on its way.
  void cut_shards(const std::vector<double>& weights);
  void choose_buckets();           // after each step
  void leave_one_copy() noexcept;  // at the end

  [[nodiscard]] std::vector<DataParallel::StateOfParameter> optimizer_state();
  void load_optimizer_state(const std::vector<DataParallel::StateOfParameter>& states);
  [[nodiscard]] CompressionReport compression_report();
  [[nodiscard]] CompressionStates compression_states();
  void load_compression_states(const CompressionStates& states);

 private:
  // `decision`: of the tuning that goes on in the new engine. `policy`: to change to; "" for the one in
  // force.
  void replace_engine(Fusion fusion, const std::string& why, const View& decision = {},
                      std::string policy = "");
  Engine& compressing_engine(const char* call);

  Trainer& own_;
  std::shared_ptr<const ShardShares> shares_;  // null where shards are equal
};

}  // namespace dear::train
