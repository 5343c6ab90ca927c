#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dear/comm/agreement/participation.h"
#include "dear/predict/balance/batch_shares.h"

namespace dear::train {

class Trainer;

// Ranks that run out of data, and steps that are weighted by samples: [Note: participation]. What a Join
// asks.
class UnevenInputs {
 public:
  explicit UnevenInputs(Trainer& own) : own_(own) {}

  void samples(std::int64_t count);  // of the next step
  void begin_step();
  // Tells ranks without data what this rank does next; nothing outside of a Join.
  void announce(const agreement::Announcement& what, const std::string& text = {});
  // Multiplies the gradient by this rank's weight.
  void weigh(std::size_t parameter);
  // Ends what was said of a step, taken or given up; shares of batches follow what ranks said of their
  // speeds.
  void end_step();

  // See DataParallelOptions::balance.
  void begin_balance();  // all ranks together
  void hear_balance();   // before a step is taken: waits for what the ranks said as it began
  [[nodiscard]] const BatchShares& batch_shares() const;

  // For a Join.
  [[nodiscard]] std::int64_t settle_for_join();  // returns the bytes of the optimiser's options
  std::shared_ptr<agreement::Announcements> announcements(std::int64_t text_bytes);
  void require_all_stepped();
  void follow(const agreement::Announcement& what);  // does as the others do

 private:
  void attend(const std::function<void()>& act);
  void require_everyone();
  void follow_backward();
  double factor();

  Trainer& own_;
  std::optional<BatchShares> shares_;
  // For measured shares, in seconds: the end of the last step, the waits until then, and the waits of this
  // step for what ranks say.
  double ended_at_ = 0, exposed_then_ = 0, listened_ = 0;
};

}  // namespace dear::train
