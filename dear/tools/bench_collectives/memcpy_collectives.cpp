#include "dear/tools/bench_collectives/memcpy_collectives.h"

#include <cstring>

#include "dear/tools/bench_collectives/private_collectives.h"

namespace dear::bench_collectives {
namespace {

class MemcpyCollectives : public PrivateCollectives {
 public:
  MemcpyCollectives() : PrivateCollectives(1) {}  // each rank for itself

  [[nodiscard]] std::string description() const override { return "each rank copies its vector once"; }
  void prepare(std::int64_t bytes, std::int64_t) override {
    data_ = allocate_private(bytes, Pages::huge);  // it is to be the floor
    output_ = allocate_private(bytes, Pages::huge);
  }
  void run(const Call& call) override {
    std::memcpy(output_.get(), data_.get(), static_cast<std::size_t>(call.count * size_of(call.dtype)));
  }
};

}  // namespace

std::unique_ptr<Collectives> make_memcpy_collectives() { return std::make_unique<MemcpyCollectives>(); }

}  // namespace dear::bench_collectives
