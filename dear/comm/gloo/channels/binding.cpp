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
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/tcp/unbound_buffer.h>
#if __has_include(<gloo/transport/tcp/socket.h>)
#include <gloo/transport/tcp/socket.h>
#define DEAR_GLOO_LISTENS_ONCE 1
#else
#define DEAR_GLOO_LISTENS_ONCE 0
#endif
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include "dear/base/os/blocked_signals.h"

// Compiled against Debian's Gloo into a module of its own. Nothing else of DeAR is linked into it, and no
// symbol of Gloo shows outside: see [Note: two copies of Gloo] in gloo.h.
namespace dear::channels {
namespace {

namespace tcp = ::gloo::transport::tcp;
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
    std::string text = error.what();
    text.resize(std::min(text.find('\n'), text.size()));
    // Gloo's begin with the line of its source that says so: "[../pair.cc:589] ".
    if (text.starts_with('[') && text.find("] ") != std::string::npos) text.erase(0, text.find("] ") + 2);
    throw std::runtime_error(text);
  }
}

using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

// Looks at a message without a wait: when a wait of Gloo runs out it closes the connections to all peers.
class Look : public tcp::UnboundBuffer {
 public:
  static bool is_complete(::gloo::transport::UnboundBuffer& buffer, int tcp::UnboundBuffer::* completions) {
    auto& of_tcp = static_cast<tcp::UnboundBuffer&>(buffer);
    const std::lock_guard lock(of_tcp.*(&Look::m_));
    return of_tcp.*completions > 0;
  }
  static constexpr int tcp::UnboundBuffer::* kSent = &Look::sendCompletions_;
  static constexpr int tcp::UnboundBuffer::* kReceived = &Look::recvCompletions_;
};

class Send final : public Posted {
 public:
  explicit Send(Buffer buffer) : buffer_(std::move(buffer)) {}
  bool wait(const std::atomic<bool>&) override {
    return translated([&] { return buffer_->waitSend(kForever); });
  }
  void interrupt() noexcept override { buffer_->abortWaitSend(); }
  bool is_complete() override { return Look::is_complete(*buffer_, Look::kSent); }
  void break_off() override {
    translated([&] { return buffer_->waitSend(kNow); });
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
  bool is_complete() override { return Look::is_complete(*buffer_, Look::kReceived); }
  void break_off() override {
    translated([&] { return buffer_->waitRecv(kNow); });
  }

 private:
  const Buffer buffer_;
};

// An end of a connection that stands already. In Gloo of 2022 (Debian 12) a pair listens from its first
// moment, and takes whoever comes first for the peer: that is undone here, and whatever came in between. In
// Gloo of 2023 (Debian 13) a device listens for all of its pairs, and gives a pair its connection by a call,
// which is made here.
class Pair final : public tcp::Pair {
 public:
  Pair(tcp::Context* context, tcp::Device* device, int rank, milliseconds timeout)
      : tcp::Pair(context, device, rank, timeout) {
    const std::lock_guard lock(m_);
    if (fd_ >= 0) {
      device_->unregisterDescriptor(fd_, this);
      ::close(std::exchange(fd_, -1));
    }
    state_ = INITIALIZING;
    ex_ = nullptr;
    rx_ = tcp::Op();
  }
#if DEAR_GLOO_LISTENS_ONCE
  void adopt(int socket) { connectCallback(std::make_shared<tcp::Socket>(socket), tcp::Error::kSuccess); }
#else
  void adopt(int socket) {
    const std::lock_guard lock(m_);
    fd_ = socket;
    handleConnected();
  }
#endif
};

// A context of Gloo whose pairs are given their connections.
class Mesh final : public ::gloo::Context {
 public:
  explicit Mesh(const GlooStart& start) : Context(start.rank, start.size) {
    setTimeout(start.timeout);
    // What a pair of Gloo listens on for a moment: no address that another host reaches.
    device_ = tcp::CreateDevice(tcp::attr("127.0.0.1"));
    transportContext_ = device_->createContext(rank, size);
    transportContext_->setTimeout(start.timeout);
    auto* const context = dynamic_cast<tcp::Context*>(transportContext_.get());
    auto* const device = dynamic_cast<tcp::Device*>(device_.get());
    if (context == nullptr || device == nullptr) throw std::runtime_error("Gloo has no TCP");
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank)
        transportContext_->getPair(peer) = std::make_unique<Pair>(context, device, peer, start.timeout);
    }
  }
  ~Mesh() override = default;

  void adopt(int peer, int socket) { static_cast<Pair&>(*transportContext_->getPair(peer)).adopt(socket); }
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

  void adopt(int peer, int socket) override {
    translated([&] {
      const os::BlockedSignals blocked;
      mesh_->adopt(peer, socket);
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
