#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/base/first_error.h"
#include "dear/base/units.h"
#include "dear/collective/nccl/arrangement.h"
#include "dear/collective/nccl/communicator.h"
#include "dear/collective/nccl/nccl.h"
#include "dear/collective/programs/heading.h"
#include "dear/collective/shard.h"

namespace dear::collective {
namespace {

class OwnedEvent {
 public:
  explicit OwnedEvent(int rank) {
    check_cuda(rank, "make an event", cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  OwnedEvent(const OwnedEvent&) = delete;
  OwnedEvent& operator=(const OwnedEvent&) = delete;
  ~OwnedEvent() { static_cast<void>(cudaEventDestroy(event_)); }
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class Nccl final : public DeviceBackend {
  // The first error is this rank's for good, and ends what is on the device.
  template <typename Function>
  auto guarded(const Function& function) {
    return error_.guard(function, [this](const std::exception& error) {
      communicator_.abort(error.what());
      communicator_.end();
    });
  }

 public:
  explicit Nccl(const NcclOptions& options)
      : rank_(options.rank),
        size_(options.size),
        device_(options.device),
        memory_(options.memory),
        communicator_(options),
        done_(options.rank),
        headings_(options.rank, options.device, NcclOptions::Memory::host,
                  static_cast<std::int64_t>(sizeof(Heading)) * options.size) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string description() const override {
    int version = 0;
    static_cast<void>(ncclGetVersion(&version));
    return fmt::format("nccl {}.{}.{}, {} {}", version / 10'000, version / 100 % 100, version % 100, size_,
                       size_ == 1 ? "rank" : "ranks");
  }

  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    return guarded([&] { return allocate_on_all(bytes, deadline); });
  }
  Timing run(const Request& request, Deadline deadline) override {
    return guarded([&] {
      compare(heading_of(++sequence_, request), deadline);
      const SteadyTime begin = SteadyClock::now();
      put(request, nullptr, done_.get(), deadline);
      communicator_.wait(describe(request), done_.get(), deadline);
      return Timing{.begin = begin,
                    .end = SteadyClock::now(),
                    .asked = request.asked == SteadyTime{} ? begin : request.asked};
    });
  }
  void enqueue(const Request& request, Event after, Event done, Deadline deadline) override {
    guarded([&] {
      validate(request, size_);
      put(request, static_cast<cudaEvent_t>(after), static_cast<cudaEvent_t>(done), deadline);
      return 0;
    });
  }
  void wait(Event event, Deadline deadline) override {
    guarded([&] {
      communicator_.wait("wait for a collective", static_cast<cudaEvent_t>(event), deadline);
      return 0;
    });
  }
  void abort(const std::string& reason) noexcept override {
    communicator_.abort(fmt::format("rank {} failed: {}", rank_, reason));
  }

 private:
  Buffer allocate_on_all(std::int64_t bytes, Deadline deadline);
  // What every rank says of its collective, gathered in memory of the host and compared there.
  std::vector<Heading> gather(const Heading& mine, Deadline deadline);
  void compare(const Heading& mine, Deadline deadline);
  void put(const Request& request, cudaEvent_t after, cudaEvent_t done, Deadline deadline);
  ncclResult_t call(const Request& request, ncclComm_t communicator, cudaStream_t stream) const;
  [[nodiscard]] std::byte* memory_of(const View& view) const;

  const int rank_;
  const int size_;
  const int device_;
  const NcclOptions::Memory memory_;
  Communicator communicator_;
  OwnedEvent done_;
  NcclRegion headings_;
  std::uint64_t sequence_ = 0;
  FirstError error_;
};

std::byte* Nccl::memory_of(const View& view) const {
  if (!view.buffer.region()) return nullptr;
  if (dynamic_cast<const NcclRegion*>(view.buffer.region().get()) == nullptr) {
    throw ConfigError(
        "a collective was given a buffer of another group: allocate it with the group that uses it");
  }
  return view.buffer.data() + view.offset_bytes;
}

std::vector<Heading> Nccl::gather(const Heading& mine, Deadline deadline) {
  auto* const all = reinterpret_cast<Heading*>(headings_.data);
  all[rank_] = mine;
  communicator_.queue(
      "tell the others what it asks for",
      [&](ncclComm_t communicator, cudaStream_t stream) {
        return ncclAllGather(all + rank_, all, sizeof(Heading), ncclUint8, communicator, stream);
      },
      deadline);
  communicator_.record(done_.get());
  communicator_.wait("hear what the others ask for", done_.get(), deadline);
  return {all, all + size_};
}

void Nccl::compare(const Heading& mine, Deadline deadline) {
  const std::vector<Heading> all = gather(mine, deadline);
  for (int peer = 0; peer < size_; ++peer) {
    throw_on_mismatch(mine, rank_, all[static_cast<std::size_t>(peer)], peer);
  }
}

Buffer Nccl::allocate_on_all(std::int64_t bytes, Deadline deadline) {
  if (bytes < 0) {
    throw ConfigError(fmt::format("cannot allocate a buffer of {} bytes: the size is negative", bytes));
  }
  Heading mine = heading_of_allocation(++sequence_, bytes);
  compare(mine, deadline);
  std::shared_ptr<NcclRegion> region;
  std::string refused;
  try {
    region = std::make_shared<NcclRegion>(rank_, device_, memory_, bytes);
  } catch (const TransportError& error) {
    refused = error.what();
  }
  mine.label = region ? 0 : 1;
  const std::vector<Heading> all = gather(mine, deadline);
  if (!region) throw TransportError(refused);
  for (int peer = 0; peer < size_; ++peer) {
    if (all[static_cast<std::size_t>(peer)].label != 0) {
      throw TransportError(
          fmt::format("rank {} cannot allocate {} on its GPU: use a smaller model, or more memory", peer,
                      format_bytes(bytes)));
    }
  }
  return Buffer(std::move(region));
}

void Nccl::put(const Request& request, cudaEvent_t after, cudaEvent_t done, Deadline deadline) {
  if (after != nullptr) communicator_.wait_on_device(after);
  if (request.operation == Operation::barrier) {
    // The headings have met already when it is compared; else this is what meets.
    communicator_.queue(
        describe(request),
        [&](ncclComm_t communicator, cudaStream_t stream) {
          return ncclAllGather(headings_.data + rank_, headings_.data, 1, ncclUint8, communicator, stream);
        },
        deadline);
  } else if (request.view.count > 0) {
    communicator_.queue(
        describe(request),
        [&](ncclComm_t communicator, cudaStream_t stream) { return call(request, communicator, stream); },
        deadline);
  }
  communicator_.record(done);
}

ncclResult_t Nccl::call(const Request& request, ncclComm_t communicator, cudaStream_t stream) const {
  const View& view = request.view;
  std::byte* const data = memory_of(view);
  const auto count = static_cast<std::size_t>(view.count);
  const std::int64_t element = size_of(view.dtype);
  const ncclDataType_t type = nccl_type(view.dtype);
  const auto equal = equal_shards(view.count, view.dtype, size_);
  ncclResult_t result = ncclSuccess;
  // The first refusal ends a series of calls.
  const auto each_shard = [&](const auto& function) {
    for (int owner = 0; owner < size_ && (result == ncclSuccess || result == ncclInProgress); ++owner) {
      const Range shard = shard_of(view.count, view.dtype, size_, owner);
      if (shard.count() > 0) {
        result = function(owner, data + shard.begin * element, static_cast<std::size_t>(shard.count()));
      }
    }
    return result;
  };
  switch (request.operation) {
    case Operation::reduce_scatter: {
      const ncclRedOp_t operation = nccl_operation(request.reduction);
      if (equal) {
        return ncclReduceScatter(data, data + rank_ * *equal * element, static_cast<std::size_t>(*equal),
                                 type, operation, communicator, stream);
      }
      return each_shard([&](int owner, std::byte* at, std::size_t elements) {
        return ncclReduce(at, owner == rank_ ? at : nullptr, elements, type, operation, owner, communicator,
                          stream);
      });
    }
    case Operation::all_gather:
      if (equal) {
        return ncclAllGather(data + rank_ * *equal * element, data, static_cast<std::size_t>(*equal), type,
                             communicator, stream);
      }
      return each_shard([&](int owner, std::byte* at, std::size_t elements) {
        return ncclBroadcast(at, at, elements, type, owner, communicator, stream);
      });
    case Operation::all_reduce:
      return ncclAllReduce(data, data, count, type, nccl_operation(request.reduction), communicator, stream);
    case Operation::broadcast:
      return ncclBroadcast(data, data, count, type, request.root, communicator, stream);
    case Operation::all_to_all: {
      std::byte* const output = memory_of(request.output);
      const auto block = count / static_cast<std::size_t>(size_);
      for (int peer = 0; peer < size_ && (result == ncclSuccess || result == ncclInProgress); ++peer) {
        const std::int64_t at = peer * static_cast<std::int64_t>(block) * element;
        result = ncclSend(data + at, block, type, peer, communicator, stream);
        if (result != ncclSuccess && result != ncclInProgress) break;
        result = ncclRecv(output + at, block, type, peer, communicator, stream);
      }
      return result;
    }
    case Operation::barrier:
      break;
  }
  return result;
}

}  // namespace
}  // namespace dear::collective

extern "C" __attribute__((visibility("default"))) dear::collective::DeviceBackend* dear_make_nccl(
    const dear::collective::NcclOptions& options) {
  return new dear::collective::Nccl(options);
}
