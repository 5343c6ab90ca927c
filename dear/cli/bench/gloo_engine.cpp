#include "dear/cli/bench/gloo_engine.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/torch.h>

#include "dear/base/error.h"
#include "dear/cli/bench/private_memory.h"
#include "dear/collective/environment.h"
#include "dear/train/c10d/c10d.h"
#include "dear/train/c10d/gloo.h"
#include "dear/train/torch_types.h"

namespace dear::cli::bench {
namespace {

class GlooEngine : public Engine {
 public:
  explicit GlooEngine(train::ProcessGroup gloo) : gloo_(std::move(gloo)) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("Gloo in libtorch {}, {} ranks, its own collectives", TORCH_VERSION, gloo_->getSize());
  }
  [[nodiscard]] std::string refusal(MeasuredOperation operation, DType dtype) const override {
    if (operation == MeasuredOperation::pair || operation == MeasuredOperation::reduce_scatter) {
      return "Gloo has no reduce-scatter in libtorch, where an all-reduce takes its place";
    }
    return dtype == DType::bf16 ? "Gloo does not carry bf16 in libtorch" : "";
  }
  [[nodiscard]] int granularity(MeasuredOperation operation) const override {
    const bool blocks =
        operation == MeasuredOperation::all_gather || operation == MeasuredOperation::all_to_all;
    return blocks ? gloo_->getSize() : 1;
  }
  [[nodiscard]] Range shard(const Work& work, int rank) const override {
    const std::int64_t block = work.count / gloo_->getSize();
    return {rank * block, (rank + 1) * block};
  }
  [[nodiscard]] const std::byte* reduced_shard(const Work&) const override { return nullptr; }
  void prepare(std::int64_t bytes, std::int64_t output_bytes) override {
    data_ = allocate_private(bytes);
    if (output_bytes > 0) {
      output_ = allocate_private(output_bytes);
    }
  }
  [[nodiscard]] std::byte* data() const override { return data_.get(); }
  [[nodiscard]] std::byte* output() const override { return output_.get(); }

  void run(const Work& work) override {
    std::vector<at::Tensor> whole{tensor(data_, work, {0, work.count})};
    switch (work.operation) {
      case MeasuredOperation::all_reduce:
        gloo_->allreduce(whole)->wait();
        return;
      case MeasuredOperation::all_gather: {
        std::vector<std::vector<at::Tensor>> shards(1);
        for (int rank = 0; rank < gloo_->getSize(); ++rank) {
          shards.front().push_back(tensor(data_, work, shard(work, rank)));
        }
        std::vector<at::Tensor> mine{shards.front()[static_cast<std::size_t>(gloo_->getRank())]};
        gloo_->allgather(shards, mine)->wait();
        return;
      }
      case MeasuredOperation::broadcast:
        gloo_->broadcast(whole)->wait();
        return;
      case MeasuredOperation::all_to_all: {
        at::Tensor output = tensor(output_, work, {0, work.count});
        std::vector<std::int64_t> equal;
        gloo_->alltoall_base(output, whole.front(), equal, equal)->wait();
        return;
      }
      case MeasuredOperation::barrier:
        gloo_->barrier()->wait();
        return;
      case MeasuredOperation::pair:
      case MeasuredOperation::reduce_scatter:
        break;
    }
    throw ConfigError(refusal(work.operation, work.dtype));
  }

 private:
  static at::Tensor tensor(const PrivateMemory& memory, const Work& work, Range range) {
    return torch::from_blob(memory.get() + range.begin * size_of(work.dtype), {range.count()},
                            train::scalar_type_of(work.dtype));
  }

  train::ProcessGroup gloo_;
  PrivateMemory data_;
  PrivateMemory output_;
};

}  // namespace

std::unique_ptr<Engine> make_gloo_engine(const EngineOptions& options) {
  const LaunchEnvironment environment = read_launch_environment();
  return std::make_unique<GlooEngine>(
      train::make_gloo({.rank = environment.rank,
                        .size = environment.size,
                        .master_address = environment.master_address,
                        .master_port = environment.master_port + options.port_offset,
                        .interface_name = environment.network_interface,
                        .timeout = options.timeout}));
}

}  // namespace dear::cli::bench
