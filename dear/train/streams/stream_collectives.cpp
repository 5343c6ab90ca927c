#include "dear/train/streams/stream_collectives.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

// [Note: on the current stream] With asyncOp = false a backend with streams, as NCCL's, launches a collective
// on the current stream, and returns without a work, or with one whose wait() lets that stream wait. To
// others asyncOp means nothing: on the CPU, and where Gloo carries memory of a GPU through the host, the
// result is there once the work was waited for.
class OfBackend : public StreamCollectives {
 public:
  explicit OfBackend(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {
    if (!backend_) throw ConfigError("there is no backend of a process group to train on: it is null");
  }
  [[nodiscard]] int rank() const override { return backend_->getRank(); }
  [[nodiscard]] int size() const override { return backend_->getSize(); }
  [[nodiscard]] std::string description() const override { return "c10d " + backend_->getBackendName(); }

  void reduce_scatter(at::Tensor& vector) override {
    at::Tensor own = shard_of(vector);
    c10d::ReduceScatterOptions options;
    options.asyncOp = false;
    finish(backend_->_reduce_scatter_base(own, vector, options));
  }
  void all_gather(at::Tensor& vector) override {
    at::Tensor own = shard_of(vector);
    c10d::AllgatherOptions options;
    options.asyncOp = false;
    finish(backend_->_allgather_base(vector, own, options));
  }
  void all_reduce(at::Tensor& vector, Joined joined) override {
    c10d::AllreduceOptions options;
    options.asyncOp = false;
    options.reduceOp = joined == Joined::sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
    std::vector<at::Tensor> vectors{vector};
    finish(backend_->allreduce(vectors, options));
  }

 private:
  [[nodiscard]] at::Tensor shard_of(const at::Tensor& vector) const {
    const std::int64_t elements = vector.numel() / size();
    return vector.narrow(0, rank() * elements, elements);
  }
  static void finish(const c10::intrusive_ptr<c10d::Work>& work) {
    if (work) work->wait();
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace

std::shared_ptr<StreamCollectives> stream_collectives(c10::intrusive_ptr<c10d::Backend> backend) {
  return std::make_shared<OfBackend>(std::move(backend));
}

std::shared_ptr<StreamCollectives> stream_collectives(
    const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, c10::DeviceType device) {
  if (!process_group) throw ConfigError("there is no process group to train on: it is null");
  try {
    return stream_collectives(process_group->getBackend(device));
  } catch (const c10::Error& error) {
    const std::string why = error.what_without_backtrace();
    throw ConfigError(fmt::format(
        "the process group {} has no backend that carries memory of {} ({}): make it with "
        "\"cpu:gloo,cuda:nccl\"",
        process_group->getBackendName(), c10::DeviceTypeName(device, true), why.substr(0, why.find('\n'))));
  }
}

}  // namespace dear
