#include "dear/measure/memcpy_engine.h"

#include <cstring>

#include "dear/measure/private_memory.h"

namespace dear::measure {
namespace {

class MemcpyEngine : public Engine {
 public:
  [[nodiscard]] std::string description() const override { return "each rank copies its vector once"; }
  [[nodiscard]] Range shard(const Work& work, int) const override { return {0, work.count}; }
  [[nodiscard]] const std::byte* reduced_shard(const Work&) const override { return nullptr; }
  void prepare(std::int64_t bytes, std::int64_t) override {
    data_ = allocate_private(bytes, Pages::huge);  // it is to be the floor
    output_ = allocate_private(bytes, Pages::huge);
  }
  [[nodiscard]] std::byte* data() const override { return data_.get(); }
  [[nodiscard]] std::byte* output() const override { return output_.get(); }
  void run(const Work& work) override {
    std::memcpy(output_.get(), data_.get(), static_cast<std::size_t>(work.count * size_of(work.dtype)));
  }

 private:
  PrivateMemory data_;
  PrivateMemory output_;
};

}  // namespace

std::unique_ptr<Engine> make_memcpy_engine() { return std::make_unique<MemcpyEngine>(); }

}  // namespace dear::measure
