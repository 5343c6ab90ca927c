#include "dear/measure/memcpy_collectives.h"

#include <cstring>

#include "dear/measure/private_memory.h"

namespace dear::measure {
namespace {

class MemcpyCollectives : public Collectives {
 public:
  [[nodiscard]] std::string description() const override { return "each rank copies its vector once"; }
  [[nodiscard]] Range shard(const Call& call, int) const override { return {0, call.count}; }
  [[nodiscard]] const std::byte* reduced_shard(const Call&) const override { return nullptr; }
  void prepare(std::int64_t bytes, std::int64_t) override {
    data_ = allocate_private(bytes, Pages::huge);  // it is to be the floor
    output_ = allocate_private(bytes, Pages::huge);
  }
  [[nodiscard]] std::byte* data() const override { return data_.get(); }
  [[nodiscard]] std::byte* output() const override { return output_.get(); }
  void run(const Call& call) override {
    std::memcpy(output_.get(), data_.get(), static_cast<std::size_t>(call.count * size_of(call.dtype)));
  }

 private:
  PrivateMemory data_;
  PrivateMemory output_;
};

}  // namespace

std::unique_ptr<Collectives> make_memcpy_collectives() { return std::make_unique<MemcpyCollectives>(); }

}  // namespace dear::measure
