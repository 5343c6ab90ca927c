#include "dear/tools/bench_collectives/gloo_collectives.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/environment.h"
#include "dear/comm/gloo/channels/gloo.h"
#include "dear/tools/bench_collectives/private_collectives.h"

namespace dear::bench_collectives {
namespace {

class GlooCollectives : public PrivateCollectives {
 public:
  explicit GlooCollectives(std::unique_ptr<channels::GlooMesh> gloo)
      : PrivateCollectives(gloo->size()), gloo_(std::move(gloo)) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("{}, {} ranks, its own collectives", gloo_->description(), gloo_->size());
  }
  [[nodiscard]] std::string refusal(MeasuredOperation operation, DType dtype) const override {
    if (operation == MeasuredOperation::pair || operation == MeasuredOperation::reduce_scatter) {
      return "Gloo has no reduce-scatter, where an all-reduce takes its place";
    }
    if (operation == MeasuredOperation::all_to_all_v) return "an all-to-all of full blocks takes its place";
    return dtype == DType::bf16 ? "Gloo does not add bf16" : "";
  }
  [[nodiscard]] int granularity(MeasuredOperation operation) const override {
    const bool blocks =
        operation == MeasuredOperation::all_gather || operation == MeasuredOperation::all_to_all;
    return blocks ? gloo_->size() : 1;
  }

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
      case MeasuredOperation::all_to_all_v:
        break;
    }
    throw ConfigError(refusal(call.operation, call.dtype));
  }

 private:
  std::unique_ptr<channels::GlooMesh> gloo_;
};

}  // namespace

std::unique_ptr<Collectives> open_gloo_collectives(const LibraryOptions& options) {
  const LaunchEnvironment environment = read_launch_environment();
  return std::make_unique<GlooCollectives>(
      channels::open_gloo({.rank = environment.rank,
                           .size = environment.size,
                           .master_address = environment.master_address,
                           .master_port = environment.master_port,
                           .job = environment.job,
                           .secret = read_secret(environment.secret_file),
                           .interface_name = environment.network_interface,
                           .deadline = Deadline::after(options.timeout)}));
}

}  // namespace dear::bench_collectives
