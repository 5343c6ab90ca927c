#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "dear/base/os/remove_tree.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/testing/net.h"
#include "dear/train/data_parallel/testing/ranks.h"

// A training that is saved and resumed, for the tests of checkpoints.
namespace dear::checkpoint::testing {

inline constexpr std::int64_t kRows = 12;  // of all ranks together, so that 1, 3 and 4 ranks see the same

struct Job {
  explicit Job(Group of, DataParallelOptions options = {.buckets = given(Fusion::parse("64KiB"))})
      : group(of),
        net(train::testing::make_net()),
        adamw(net->parameters(), torch::optim::AdamWOptions(1e-2)) {
    parallel.emplace(*net, adamw, group, std::move(options));
  }
  double step() {
    const std::int64_t rows = kRows / group.size();
    const auto batch = train::testing::rows(taken++, rows * group.rank(), rows, train::testing::kFeatures);
    const torch::Tensor loss = torch::mse_loss(net->forward(batch.inputs), batch.targets);
    loss.backward();
    parallel->step();
    return loss.item<double>();
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  std::string digest() {
    parallel->synchronize();
    return parameter_digest(*net);
  }
  Group group;
  torch::nn::Sequential net;
  torch::optim::AdamW adamw;
  std::optional<DataParallel> parallel;
  std::int64_t taken = 0;
};

// A folder that is gone afterwards.
class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "dear-checkpoint-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~Folder() { static_cast<void>(os::remove_tree(path_)); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string path(const std::string& name = "") const {
    return path_ + (name.empty() ? "" : "/" + name);
  }

 private:
  std::string path_;
};

}  // namespace dear::checkpoint::testing
