#include "dear/tools/bench_collectives/mpi_collectives.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/mpi/channels/mpi.h"
#include "dear/tools/bench_collectives/private_collectives.h"

namespace dear::bench_collectives {
namespace {

using channels::MpiCollective;

class MpiCollectives : public PrivateCollectives {
 public:
  explicit MpiCollectives(std::shared_ptr<channels::Mpi> mpi)
      : PrivateCollectives(mpi->size()), mpi_(std::move(mpi)) {}

  [[nodiscard]] std::string description() const override {
    return mpi_->description() + ", its own collectives";
  }
  [[nodiscard]] std::string refusal(MeasuredOperation operation, DType dtype) const override {
    if (operation == MeasuredOperation::all_to_all_v) return "an all-to-all of full blocks takes its place";
    const bool can =
        !reduces(operation) || mpi_->supports({.collective = Collective::all_reduce, .dtype = dtype});
    return can ? "" : fmt::format("MPI has no sums of {}", dear::name_of(dtype));
  }
  [[nodiscard]] int granularity(MeasuredOperation operation) const override {
    const bool any_count = operation == MeasuredOperation::all_reduce ||
                           operation == MeasuredOperation::broadcast ||
                           operation == MeasuredOperation::barrier;
    return any_count ? 1 : mpi_->size();
  }
  void prepare(std::int64_t bytes, std::int64_t output_bytes) override {
    PrivateCollectives::prepare(bytes, output_bytes);
    shard_ = allocate_private(bytes / mpi_->size() + 1);
  }
  [[nodiscard]] const std::byte* reduced_shard(const Call&) const override { return shard_.get(); }

  void run(const Call& call) override {
    MpiCollective collective{.data = data_.get(), .count = call.count, .dtype = call.dtype};
    const auto perform = [&](Collective asked, std::byte* output) {
      collective.collective = asked;
      collective.output = output;
      mpi_->run_blocking(collective);
    };
    switch (call.operation) {
      case MeasuredOperation::pair:
        // The reduced shard lies apart in between: what both calls do best.
        perform(Collective::reduce_scatter, shard_.get());
        return perform(Collective::all_gather, shard_.get());
      case MeasuredOperation::reduce_scatter:
        return perform(Collective::reduce_scatter, shard_.get());
      case MeasuredOperation::all_gather:
        return perform(Collective::all_gather, nullptr);
      case MeasuredOperation::all_reduce:
        return perform(Collective::all_reduce, nullptr);
      case MeasuredOperation::broadcast:
        return perform(Collective::broadcast, nullptr);
      case MeasuredOperation::all_to_all_v:  // refused
        return;
      case MeasuredOperation::all_to_all:
        return perform(Collective::all_to_all, output_.get());
      case MeasuredOperation::barrier:
        return perform(Collective::barrier, nullptr);
    }
  }

 private:
  std::shared_ptr<channels::Mpi> mpi_;
  PrivateMemory shard_;
};

}  // namespace

std::unique_ptr<Collectives> open_mpi_collectives(const std::string& implementation,
                                                  const LibraryOptions& options) {
  // A group of this process may be on it; it outlives the libraries of a benchmark.
  if (channels::Mpi* const shared = channels::mpi_in_use()) {
    return std::make_unique<MpiCollectives>(std::shared_ptr<channels::Mpi>(shared, [](channels::Mpi*) {}));
  }
  return std::make_unique<MpiCollectives>(channels::open_mpi({.implementation = implementation,
                                                              .deadline = Deadline::after(options.timeout),
                                                              .outlive_peers = false}));
}

}  // namespace dear::bench_collectives
