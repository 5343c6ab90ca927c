#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dear/comm/agreement/join_options.h"
#include "dear/train/data_parallel/data_parallel.h"

namespace dear {

namespace agreement {
struct Joined;
}

// Training whose ranks have different numbers of batches: those that have run out take part in the steps of
// the others, and all end together.
//
//   dear::Join join(dp);
//   for (auto& batch : *loader) {
//     criterion(model->forward(batch.data), batch.target).backward();
//     dp.step();
//   }
//   join.end();
//
// A rank that has called end() makes the calls of DataParallel that the others make (steps, clipping, steps
// given up, synchronize(), regroup(), optimizer_state(); tuning goes on, too), with gradients that count as
// zero, until every rank has called it. It takes the options of the optimiser from the first rank that has
// data. Parameters are the same on all ranks afterwards, and so are those options. synchronize() takes
// buffers from the first rank that has data.
//
// Every rank makes a Join of the same models and options, between a step() and the next backward. For the
// program's thread. While ranks have data their steps cost two small all-gathers more, on a group of its own,
// which nobody waits for before step(); see JoinOptions for what does wait.
class Join {
 public:
  explicit Join(DataParallel& model, const JoinOptions& options = {});
  // Joins several models that train in the same loop, as in a GAN; all on the same ranks. ConfigError while
  // another Join is open: a rank that has run out could follow one of them only.
  explicit Join(std::vector<DataParallel*> models, const JoinOptions& options = {});
  // Without end(), as after an exception, the other ranks learn that this one left, as a TransportError.
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // Before a forward pass with collectives of its own (SyncBatchNorm), on every rank that has data: with
  // Uneven::error it throws the MismatchError before them. Of the model of this number.
  void begin_step(std::size_t model = 0);
  // This rank has no more data. Throws what the others' steps throw here; MismatchError, on every rank, where
  // ranks make different calls, and with Uneven::error when another rank has data. ConfigError for gradients
  // that no step() has taken.
  void end();
  // Steps of others that this rank took part in without data: so often a schedule that goes by steps is
  // behind.
  [[nodiscard]] std::int64_t shadowed() const;
  // Ends this rank's part, and the training of the others, with this reason.
  void abandon(const std::string& reason) noexcept;

 private:
  void follow();

  std::vector<DataParallel*> models_;
  std::shared_ptr<agreement::Joined> joined_;  // null where one rank trains alone
  bool ended_ = false;
};

}  // namespace dear
