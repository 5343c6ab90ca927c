#include "dear/measure/gloo_collectives.h"

#include <utility>

#include <fmt/format.h>

#include "dear/backends/environment.h"
#include "dear/base/error.h"
#include "dear/measure/private_collectives.h"
#include "dear/transport/gloo/gloo.h"

namespace dear::measure {
namespace {

class GlooCollectives : public PrivateCollectives {
 public:
  explicit GlooCollectives(std::unique_ptr<transport::GlooMesh> gloo)
      : PrivateCollectives(gloo->size()), gloo_(std::move(gloo)) {}

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
