#include "dear/testing/stub_device/allocator.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "dear/testing/stub_device/streams.h"

namespace dear::stub_device {
namespace {

constexpr std::size_t kGrain = 512;
constexpr int kPoison = 0xff;  // NaN in every type of floating point

struct Block {
  void* memory;
  std::size_t bytes;  // a multiple of kGrain
  c10::Stream stream;
  std::set<c10::StreamId> others = {};  // streams of the same device that it was recorded on
  std::vector<TicketPtr> pending = {};  // after it was freed: until these are done nobody gets it
};

class CachingAllocator final : public c10::DeviceAllocator {
 public:
  CachingAllocator() = default;

  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::impl::VirtualGuardImpl impl(c10::DeviceType::PrivateUse1);
    const c10::Device device = impl.getDevice();
    if (bytes == 0) return {nullptr, nullptr, &free_block, device};
    const std::size_t size = (bytes + kGrain - 1) / kGrain * kGrain;
    const c10::Stream stream = impl.getStream(device);
    Block* const block = take(size, stream);
    return {block->memory, block, &free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;
  }  // what is freed is a block, not an address
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const c10::impl::VirtualGuardImpl impl(c10::DeviceType::PrivateUse1);
    Streams::all().run(impl.getStream(impl.getDevice()), "copy_data", [=] { std::memcpy(to, from, bytes); });
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    if (pointer.get_deleter() != &free_block || pointer.get_context() == nullptr) return;
    auto* const block = static_cast<Block*>(pointer.get_context());
    TORCH_CHECK(stream.device() == block->stream.device(), "memory of ", block->stream.device(),
                " was recorded on a stream of ", stream.device());
    const std::lock_guard lock(mutex_);
    if (stream.id() != block->stream.id()) block->others.insert(stream.id());
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = bytes_in_use(device);
    stats.allocated_bytes[0].peak = largest_bytes_in_use(device);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    Usage& usage = usage_.at(static_cast<std::size_t>(device));
    usage.largest = usage.now;
  }

  std::pair<std::int64_t, std::int64_t> usage(int device) {
    const std::lock_guard lock(mutex_);
    const Usage& usage = usage_.at(static_cast<std::size_t>(device));
    return {usage.now, usage.largest};
  }

 private:
  using Key = std::pair<c10::Stream, std::size_t>;
  struct Less {
    static auto of(const Key& key) {
      return std::tuple(key.first.device_index(), key.first.id(), key.second);
    }
    bool operator()(const Key& a, const Key& b) const { return of(a) < of(b); }
  };
  struct Usage {
    std::int64_t now = 0, largest = 0;
  };

  Block* take(std::size_t size, c10::Stream stream) {
    const std::lock_guard lock(mutex_);
    give_back_pending();
    Usage& usage = usage_.at(static_cast<std::size_t>(stream.device_index()));
    usage.now += static_cast<std::int64_t>(size);
    usage.largest = std::max(usage.largest, usage.now);
    std::vector<Block*>& free = free_[{stream, size}];
    if (!free.empty()) {
      Block* const block = free.back();
      free.pop_back();
      return block;
    }
    void* const memory = std::aligned_alloc(kGrain, size);
    TORCH_CHECK(memory != nullptr, "the host has no ", size, " bytes for the stub device");
    std::memset(memory, kPoison, size);
    blocks_.push_back(std::make_unique<Block>(Block{memory, size, stream}));
    return blocks_.back().get();
  }

  void give(Block* block) {
    const std::lock_guard lock(mutex_);
    usage_.at(static_cast<std::size_t>(block->stream.device_index())).now -=
        static_cast<std::int64_t>(block->bytes);
    for (const c10::StreamId other : block->others)
      block->pending.push_back(
          Streams::all().record(c10::Stream(c10::Stream::UNSAFE, block->stream.device(), other)));
    block->others.clear();
    if (!block->pending.empty()) {
      limbo_.push_back(block);
      return;
    }
    // On its stream, in the order of the program: whoever reads it later on this stream reads what the next
    // owner wrote.
    Streams::all().run(block->stream, "free", [memory = block->memory, bytes = block->bytes] {
      std::memset(memory, kPoison, bytes);
    });
    free_[{block->stream, block->bytes}].push_back(block);
  }

  void give_back_pending() {
    std::erase_if(limbo_, [&](Block* block) {
      std::erase_if(block->pending, [](const TicketPtr& ticket) { return Streams::all().is_done(ticket); });
      if (!block->pending.empty()) return false;
      Streams::all().run(block->stream, "free", [memory = block->memory, bytes = block->bytes] {
        std::memset(memory, kPoison, bytes);
      });
      free_[{block->stream, block->bytes}].push_back(block);
      return true;
    });
  }

  static void free_block(void* context);

  std::mutex mutex_;
  std::map<Key, std::vector<Block*>, Less> free_;
  std::vector<Block*> limbo_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::array<Usage, kDevices> usage_;
};

CachingAllocator& caching_allocator() {
  static auto* const one = new CachingAllocator;  // for ever: tensors may outlive everything else
  return *one;
}

void CachingAllocator::free_block(void* context) {
  if (context != nullptr) caching_allocator().give(static_cast<Block*>(context));
}

}  // namespace

c10::DeviceAllocator& allocator() { return caching_allocator(); }

void resize_storage(const c10::Storage& storage, std::size_t bytes) {
  if (storage.nbytes() == bytes) return;
  const c10::impl::VirtualGuardImpl impl(c10::DeviceType::PrivateUse1);
  const c10::OptionalDeviceGuard guard(storage.device());
  c10::DataPtr fresh = allocator().allocate(bytes);
  const std::size_t kept = std::min(bytes, storage.nbytes());
  if (kept > 0)
    Streams::all().run(
        impl.getStream(storage.device()), "resize",
        [to = fresh.get(), from = storage.data_ptr().get(), kept] { std::memcpy(to, from, kept); });
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(bytes);
}

std::int64_t bytes_in_use(int device) { return caching_allocator().usage(device).first; }
std::int64_t largest_bytes_in_use(int device) { return caching_allocator().usage(device).second; }

}  // namespace dear::stub_device
