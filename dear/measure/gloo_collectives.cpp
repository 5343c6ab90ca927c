#include "dear/measure/gloo_collectives.h"

#include <utility>

#include <fmt/format.h>

#include "dear/backends/environment.h"
#include "dear/base/error.h"
#include "dear/measure/private_memory.h"
#include "dear/transport/gloo/gloo.h"

namespace dear::measure {
namespace {

class GlooCollectives : public Collectives {
 public:
  explicit GlooCollectives(std::unique_ptr<transport::GlooMesh> gloo) : gloo_(std::move(gloo)) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("{}, {} ranks, its own collectives", gloo_->description(), gloo_->size());
  }
  [[nodiscard]] std::string refusal(MeasuredOperation operation, DType dtype) const override {
    if (operation == MeasuredOperation::pair || operation == MeasuredOperation::reduce_scatter) {
      return "Gloo has no reduce-scatter, where an all-reduce takes its place";
    }
    return dtype == DType::bf16 ? "Gloo does not add bf16" : "";
  }
  [[nodiscard]] int granularity(MeasuredOperation operation) const override {
    const bool blocks =
        operation == MeasuredOperation::all_gather || operation == MeasuredOperation::all_to_all;
    return blocks ? gloo_->size() : 1;
  }
  [[nodiscard]] Range shard(const Call& call, int rank) const override {
    const std::int64_t block = call.count / gloo_->size();
    return {rank * block, (rank + 1) * block};
  }
  [[nodiscard]] const std::byte* reduced_shard(const Call&) const override { return nullptr; }
  void prepare(std::int64_t bytes, std::int64_t output_bytes) override {
    data_ = allocate_private(bytes);
    if (output_bytes > 0) {
      output_ = allocate_private(output_bytes);
    }
  }
  [[nodiscard]] std::byte* data() const override { return data_.get(); }
  [[nodiscard]] std::byte* output() const override { return output_.get(); }

  void run(const Call& call) override {
    switch (call.operation) {
      case MeasuredOperation::all_reduce:
        return gloo_->all_reduce(data(), call.count, call.dtype, Reduction::sum);
      case MeasuredOperation::all_gather:
        return gloo_->all_gather(data(), call.count, call.dtype);
      case MeasuredOperation::broadcast:
        return gloo_->broadcast(data(), call.count, call.dtype, 0);
      case MeasuredOperation::all_to_all:
        return gloo_->all_to_all(data(), output(), call.count, call.dtype);
      case MeasuredOperation::barrier:
        return gloo_->barrier();
      case MeasuredOperation::pair:
      case MeasuredOperation::reduce_scatter:
        break;
    }
    throw ConfigError(refusal(call.operation, call.dtype));
  }

 private:
  std::unique_ptr<transport::GlooMesh> gloo_;
  PrivateMemory data_;
  PrivateMemory output_;
};

}  // namespace

std::unique_ptr<Collectives> open_gloo_collectives(const LibraryOptions& options) {
  const LaunchEnvironment environment = read_launch_environment();
  return std::make_unique<GlooCollectives>(
      transport::open_gloo({.rank = environment.rank,
                            .size = environment.size,
                            .master_address = environment.master_address,
                            .master_port = environment.master_port,
                            .job = environment.job,
                            .interface_name = environment.network_interface,
                            .deadline = Deadline::after(options.timeout)}));
}

}  // namespace dear::measure
