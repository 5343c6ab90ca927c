#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/data_parallel_options.h"

namespace dear {

struct ElasticOptions {
  std::int64_t samples = 0;  // of which `batch` make a step, whatever the number of ranks
  std::int64_t batch = 0;
  int epochs = 1;
  std::int64_t seed = 0;  // of the order of samples, which is drawn anew each epoch
  int commit = 1;         // steps between two commits of the state: what a rank that fails costs
  // A folder of Checkpoints, saved every so many steps, from which a job that is started again goes on; ""
  // for none.
  std::string checkpoints{};
  int every = 100;
  std::chrono::duration<double> timeout = std::chrono::seconds(120);  // of every wait for other ranks
  DataParallelOptions training{.policy = "wfbp"};
};

// Trains on the ranks that there are, [Note: membership]: where one fails, the others give the step up and go
// on with it, in the same processes; a process that takes its place joins them between two steps. For
// `dear launch --elastic MIN:MAX --restarts N`; under other launchers an error of the group ends the program.
//
//   dear::Elastic elastic(*model, *optimizer, {.samples = 60000, .batch = 240, .epochs = 3});
//   elastic.run([&](const torch::Tensor& indices) {
//     criterion(model->forward(x.index({indices})), y.index({indices})).backward();
//   });
//
// Each sample counts once an epoch; the gradient is the mean over the samples of a step. What is left at the
// end, less than a batch, goes with the last step. A commit puts the state into memory of the
// launcher, once for all ranks: each writes what it updates, as into a checkpoint in shards, and waits until
// the parameters are whole. It survives any number of ranks. One thread.
class Elastic {
 public:
  // Meets the other ranks, takes their state or that of the newest checkpoint. The model and the optimiser
  // must outlive it. ConfigError for options that cannot be, or that DataParallel refuses.
  Elastic(torch::nn::Module& model, torch::optim::Optimizer& optimizer, ElasticOptions options);
  ~Elastic();
  Elastic(const Elastic&) = delete;
  Elastic& operator=(const Elastic&) = delete;

  // Calls `backward` for each step, with the indices of the samples of this rank (int64, one dimension), for
  // their forward and backward pass; steps, and makes a step again that was given up. Returns when all
  // samples are used. TransportError, TimeoutError or MismatchError where ranks fail that the launcher does
  // not see end; what `backward` throws else ends the work of this rank.
  void run(const std::function<void(const torch::Tensor& indices)>& backward);

  [[nodiscard]] DataParallel& training();  // on the ranks of now; another one after each change
  [[nodiscard]] int rank() const;
  [[nodiscard]] int ranks() const;
  [[nodiscard]] std::int64_t steps() const;  // taken; those given up do not count
  [[nodiscard]] std::int64_t used() const;   // samples, of samples * epochs

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dear
