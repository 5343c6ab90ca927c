#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

// A device with streams for tests on machines without a GPU: PyTorch's PrivateUse1, under the name "stub".
// Its memory is the host's, its streams are threads with queues, its kernels are the CPU's. As on a GPU,
// operators return when they are enqueued, streams know no order among themselves but that of events, and a
// block of memory that is freed goes at once to the next tensor of the same stream. What a program forgot to
// order is wrong bits here: memory is filled with NaN when it is new and, on its stream, when it is freed.
//
// A test installs the device, works with tensors on it, and settles what it wants to happen first:
//
//   stub_device::install();
//   const at::Tensor x = at::ones({4}, stub_device::device(0)), y = at::zeros_like(x);
//   const c10::impl::VirtualGuardImpl impl(c10::DeviceType::PrivateUse1);
//   const c10::Stream side = impl.getStreamFromGlobalPool(x.device());
//   stub_device::finish();  // ones and zeros are there
//   const std::int64_t waits = stub_device::host_waits();
//   {
//     stub_device::Held held(impl.getStream(x.device()));  // nothing of the current stream runs
//     x.add_(1);                                           // ... so this does not
//     { const c10::StreamGuard guard(side); y.copy_(x); }  // without an event: reads ones
//     stub_device::settle();                               // all that may run has run
//   }
//   EXPECT_EQ(stub_device::host_waits(), waits);
//   stub_device::finish();
//
// Ranks are threads, each with a device of its own: c10::DeviceGuard(device(rank)). The engine of autograd
// has a thread for each device then. A rank leaves the devices of others alone: their streams may wait for
// it. Collectives: "dear/testing/stub_device/process_group.h"; a module moves there with
// "dear/testing/stub_device/module.h". In Python ranks are processes: `import dear_stub_device`, as tests/gpu
// does.
//
// An exception of a kernel ends the device: streams run nothing more, and whoever waits for a stream gets it,
// until reset(). Every wait has a deadline of two minutes; its error says what the stream waits for.
// Everything is safe for several threads.
namespace dear::stub_device {

inline constexpr int kDevices = 8;

// Registers the device with PyTorch, once in a process.
void install();

[[nodiscard]] c10::Device device(int index);

// Before one task of `one_in`, chosen at random, a stream rests for a time that is drawn from zero to
// `largest`. Each stream draws from a generator of its own, which begins here: so with one seed and the same
// tasks in a stream, the times are the same. Zero turns delays off.
struct Delays {
  std::uint64_t seed = 0;
  std::chrono::microseconds largest{0};
  std::uint32_t one_in = 1;
};
void set_delays(Delays delays);

// So often did a thread of the host wait for a stream so far: synchronised events, streams and devices,
// item(), copies to and from the CPU that are not non-blocking, operators whose shape depends on values, and
// barriers of a process group. Those of this header do not count.
[[nodiscard]] std::int64_t host_waits();

// Keeps a stream from starting tasks; or, where `before` is given, from starting the first of this name, and
// what is behind it.
class Held {
 public:
  explicit Held(c10::Stream stream, std::string before = "");
  ~Held() { release(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  void release();

 private:
  c10::Stream stream_;
  std::string before_;
  bool held_ = true;
};

// While it lives the stream says that a graph is captured on it. Its tasks run all the same.
class Capture {
 public:
  explicit Capture(c10::Stream stream);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  c10::Stream stream_;
};

// Returns when every stream has run all that it may: what is left waits for an event, for other ranks, or in
// a stream that is held. Meaningful while no other thread enqueues.
void settle();

// Returns when every stream has run all it has. Throws what ended the device.
void finish();

// Does as finish(), but what ended the device is forgotten, and so are delays and the record.
void reset();

// Says what ran where.
struct Ran {
  c10::DeviceIndex device;
  c10::StreamId stream;
  std::string what;  // "aten::add_.Tensor", "all_gather", "record" and "wait" of an event
};
// From start_record() on: in the order in which tasks began, over all streams.
void start_record();
[[nodiscard]] std::vector<Ran> take_record();

// Runs `task` in its turn on a stream.
void enqueue(c10::Stream stream, std::string what, std::function<void()> task);

// Bytes that tensors of a device hold, and the largest such number since install().
[[nodiscard]] std::int64_t bytes_in_use(int device);
[[nodiscard]] std::int64_t largest_bytes_in_use(int device);

}  // namespace dear::stub_device
