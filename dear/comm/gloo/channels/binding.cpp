#include "dear/comm/gloo/channels/binding.h"

#include <algorithm>
#include <functional>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/context.h>
#include <gloo/math.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dear/base/os/blocked_signals.h"

// Compiled against Debian's Gloo into a module of its own. Nothing else of DeAR is linked into it, and no
// symbol of Gloo shows outside: see [Note: two copies of Gloo] in gloo.h.
namespace dear::channels {
namespace {

using std::chrono::milliseconds;

// Deadlines are DeAR's: a wait of Gloo ends with the message, or because it is interrupted.
constexpr milliseconds kForever = std::chrono::hours(24 * 3650);
constexpr milliseconds kNow{1};  // none at all would mean Gloo's default

// Does it, and says what Gloo throws in a type that every module knows.
template <typename Do>
auto translated(const Do& action) {
  try {
    return action();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw std::runtime_error(text.substr(0, text.find('\n')));
  }
}

using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

class Send final : public Posted {
 public:
  explicit Send(Buffer buffer) : buffer_(std::move(buffer)) {}
  bool wait(const std::atomic<bool>&) override {
    return translated([&] { return buffer_->waitSend(kForever); });
  }
  void interrupt() noexcept override { buffer_->abortWaitSend(); }
  bool must_be_complete() override {
    return translated([&] { return buffer_->waitSend(kNow); });
  }

 private:
  const Buffer buffer_;
};

class Receive final : public Posted {
 public:
  explicit Receive(Buffer buffer) : buffer_(std::move(buffer)) {}
  bool wait(const std::atomic<bool>&) override {
    return translated([&] { return buffer_->waitRecv(kForever); });
  }
  void interrupt() noexcept override { buffer_->abortWaitRecv(); }
  bool must_be_complete() override {
    return translated([&] { return buffer_->waitRecv(kNow); });
  }

 private:
  const Buffer buffer_;
};

// A context of Gloo whose pairs this class connects, one by one.
class Mesh final : public ::gloo::Context {
 public:
  explicit Mesh(const GlooStart& start) : Context(start.rank, start.size) {
    setTimeout(start.timeout);
    ::gloo::transport::tcp::attr attributes;
    attributes.hostname = start.own_address;
    attributes.iface = start.interface_name;
    device_ = ::gloo::transport::tcp::CreateDevice(attributes);
    transportContext_ = device_->createContext(rank, size);
    transportContext_->setTimeout(start.timeout);
    addresses_.resize(static_cast<std::size_t>(size));
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const std::vector<char> bytes = transportContext_->createPair(peer)->address().bytes();
      addresses_[static_cast<std::size_t>(peer)].assign(bytes.begin(), bytes.end());
    }
  }
  ~Mesh() override = default;

  [[nodiscard]] const std::string& address_for(int peer) const {
    return addresses_[static_cast<std::size_t>(peer)];
  }

 private:
  std::vector<std::string> addresses_;
};

// Types of Gloo that stand for elements; those of a width are enough where nothing is added.
template <typename Do>
void with_type(DType dtype, const Do& action) {
  switch (dtype) {
    case DType::f32:
      return action(float{});
    case DType::f64:
      return action(double{});
    case DType::f16:
    case DType::bf16:
      return action(::gloo::float16{});
    case DType::i32:
      return action(std::int32_t{});
    case DType::i64:
      return action(std::int64_t{});
    case DType::u8:
      return action(std::uint8_t{});
  }
}

// Gloo has none.
template <typename T>
void combine_bits(void* out, const void* a, const void* b, std::size_t count) {
  const auto* one = static_cast<const T*>(a);
  const auto* other = static_cast<const T*>(b);
  std::transform(one, one + count, other, static_cast<T*>(out), std::bit_or<>());
}

template <typename T>
::gloo::AllreduceOptions::Func function_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&::gloo::sum<T>);
    case Reduction::max:
      return static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&::gloo::max<T>);
    case Reduction::min:
      return static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&::gloo::min<T>);
    case Reduction::bitwise_or:
      if constexpr (std::is_integral_v<T>) return &combine_bits<T>;
      throw std::runtime_error("only the bits of integers are combined");
    case Reduction::average:
      break;
  }
  throw std::runtime_error("Gloo takes no average");
}

class GlooMeshImpl final : public GlooMesh {
 public:
  explicit GlooMeshImpl(const GlooStart& start)
      : description_("Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) +
                     "." + std::to_string(GLOO_VERSION_PATCH)),
        mesh_(std::make_shared<Mesh>(start)) {}

  [[nodiscard]] int rank() const override { return mesh_->rank; }
  [[nodiscard]] int size() const override { return mesh_->size; }
  [[nodiscard]] const char* description() const override { return description_.c_str(); }
  [[nodiscard]] bool forgets_memory() const override { return true; }

  [[nodiscard]] std::string_view address_for(int peer) const override { return mesh_->address_for(peer); }
  void connect(int peer, std::string_view address_of_peer) override {
    translated([&] {
      const os::BlockedSignals blocked;
      mesh_->getPair(peer)->connect({address_of_peer.begin(), address_of_peer.end()});
    });
  }

  std::unique_ptr<Posted> send(void* data, std::int64_t bytes, int peer, int tag) override {
    return translated([&]() -> std::unique_ptr<Posted> {
      const os::BlockedSignals blocked;  // a connection whose other end is gone raises SIGPIPE
      Buffer buffer = mesh_->createUnboundBuffer(data, static_cast<std::size_t>(bytes));
      buffer->send(peer, static_cast<std::uint64_t>(tag));
      return std::make_unique<Send>(std::move(buffer));
    });
  }
  std::unique_ptr<Posted> receive(void* data, std::int64_t bytes, int peer, int tag) override {
    return translated([&]() -> std::unique_ptr<Posted> {
      const os::BlockedSignals blocked;  // it says that it is ready, and so writes
      Buffer buffer = mesh_->createUnboundBuffer(data, static_cast<std::size_t>(bytes));
      buffer->recv(peer, static_cast<std::uint64_t>(tag));
      return std::make_unique<Receive>(std::move(buffer));
    });
  }

  void all_reduce(void* data, std::int64_t count, DType dtype, Reduction reduction) override {
    own(
        [&](auto element) {
          using T = decltype(element);
          ::gloo::AllreduceOptions options(mesh_);
          options.setOutput(static_cast<T*>(data), static_cast<std::size_t>(count));
          options.setReduceFunction(function_of<T>(reduction));
          ::gloo::allreduce(options);
        },
        dtype);
  }
  void all_gather(void* data, std::int64_t count, DType dtype) override {
    own(
        [&](auto element) {
          using T = decltype(element);
          const auto block = static_cast<std::size_t>(count / size());
          ::gloo::AllgatherOptions options(mesh_);
          options.setInput(static_cast<T*>(data) + block * static_cast<std::size_t>(rank()), block);
          options.setOutput(static_cast<T*>(data), static_cast<std::size_t>(count));
          ::gloo::allgather(options);
        },
        dtype);
  }
  void broadcast(void* data, std::int64_t count, DType dtype, int root) override {
    own(
        [&](auto element) {
          using T = decltype(element);
          ::gloo::BroadcastOptions options(mesh_);
          options.setRoot(root);
          options.setOutput(static_cast<T*>(data), static_cast<std::size_t>(count));
          ::gloo::broadcast(options);
        },
        dtype);
  }
  void all_to_all(const void* data, void* output, std::int64_t count, DType dtype) override {
    own(
        [&](auto element) {
          using T = decltype(element);
          ::gloo::AlltoallOptions options(mesh_);
          options.setInput(static_cast<T*>(const_cast<void*>(data)), static_cast<std::size_t>(count));
          options.setOutput(static_cast<T*>(output), static_cast<std::size_t>(count));
          ::gloo::alltoall(options);
        },
        dtype);
  }
  void barrier() override {
    translated([&] {
      const os::BlockedSignals blocked;
      ::gloo::BarrierOptions options(mesh_);
      ::gloo::barrier(options);
    });
  }

 private:
  template <typename Do>
  void own(const Do& action, DType dtype) {
    translated([&] {
      const os::BlockedSignals blocked;
      with_type(dtype, action);
    });
  }

  const std::string description_;
  const std::shared_ptr<Mesh> mesh_;
};

std::unique_ptr<GlooMesh> make(const GlooStart& start) {
  return translated([&]() -> std::unique_ptr<GlooMesh> { return std::make_unique<GlooMeshImpl>(start); });
}

constexpr GlooBinding kBinding = {.revision = kGlooBindingRevision, .make = make};

}  // namespace
}  // namespace dear::channels

extern "C" __attribute__((visibility("default"))) const dear::channels::GlooBinding* dear_gloo_binding() {
  return &dear::channels::kBinding;
}
