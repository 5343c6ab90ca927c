#include "dear/testing/stub_device/guard.h"

#include <array>
#include <atomic>

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "dear/testing/stub_device/allocator.h"
#include "dear/testing/stub_device/random.h"
#include "dear/testing/stub_device/streams.h"

namespace dear::stub_device {
namespace {

constexpr c10::StreamId kPool = 32;  // streams of each priority, handed out in turns, as CUDA's

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, kDevices> current_streams{};

std::size_t index_of(c10::Device device) {
  const int index = device.has_index() ? device.index() : current_device;
  TORCH_CHECK(index >= 0 && index < kDevices, "there is no device stub:", index, ", there are ", kDevices);
  return static_cast<std::size_t>(index);
}

struct Event {
  c10::DeviceIndex device;
  TicketPtr ticket;
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device to) const override {
    const c10::Device before = getDevice();
    setDevice(to);
    return before;
  }
  c10::Device getDevice() const override { return {kType, current_device}; }
  void setDevice(c10::Device to) const override {
    current_device = static_cast<c10::DeviceIndex>(index_of(to));
  }
  void uncheckedSetDevice(c10::Device to) const noexcept override { current_device = to.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device device) const override {
    const std::size_t index = index_of(device);
    return stream(static_cast<c10::DeviceIndex>(index), current_streams[index]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream(static_cast<c10::DeviceIndex>(index_of(device)), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    static std::array<std::array<std::atomic<c10::StreamId>, 2>, kDevices> taken{};
    const std::size_t index = index_of(device);
    const c10::StreamId number = taken[index][high_priority ? 1 : 0]++ % kPool;
    return stream(static_cast<c10::DeviceIndex>(index), 1 + number + (high_priority ? kPool : 0));
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return getStreamFromGlobalPool(device, priority < 0);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    const c10::Stream before = getStream(to.device());
    current_streams[index_of(to.device())] = to.id();
    return before;
  }
  bool queryStream(const c10::Stream& of) const override { return Streams::all().is_idle(of); }
  bool isStreamCapturing(const c10::Stream& of) const override { return Streams::all().is_capturing(of); }
  void synchronizeStream(const c10::Stream& of) const override { Streams::all().synchronize(of); }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    Streams::all().synchronize_device(device);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag /*flag*/) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "an event of device stub:", device,
                " was recorded on a stream of ", stream.device());
    if (*event == nullptr) *event = new Event{stream.device_index(), nullptr};
    static_cast<Event*>(*event)->ticket = Streams::all().record(stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr && static_cast<Event*>(event)->ticket)
      Streams::all().wait(stream, static_cast<Event*>(event)->ticket);
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || !static_cast<Event*>(event)->ticket ||
           Streams::all().is_done(static_cast<Event*>(event)->ticket);
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr && static_cast<Event*>(event)->ticket)
      Streams::all().synchronize(static_cast<Event*>(event)->ticket);
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex /*device*/) const override {
    return Streams::all().milliseconds(static_cast<Event*>(from)->ticket, static_cast<Event*>(to)->ticket);
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    allocator().recordStream(pointer, stream);
  }

 private:
  static c10::Stream stream(c10::DeviceIndex device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, {kType, device}, id);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    current_device = static_cast<c10::DeviceIndex>(index_of({kType, device}));
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = current_device;
    setCurrentDevice(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(static_cast<int>(index_of({kType, device})));
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_generator(static_cast<int>(index_of({kType, device})));
  }
  at::Device getDeviceFromPtr(void* /*data*/) const override { return {kType, current_device}; }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetAllocator(c10::DeviceType::CPU);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

}  // namespace

void register_guard() {
  Streams::all();  // its end comes before that of what it is registered with
  c10::SetAllocator(kType, &allocator());
  static const c10::impl::DeviceGuardImplRegistrar registrar(kType, new Guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
}

c10::Stream current_stream(c10::Device device) {
  const std::size_t index = index_of(device);
  return c10::Stream(c10::Stream::UNSAFE, {kType, static_cast<c10::DeviceIndex>(index)},
                     current_streams[index]);
}

c10::Device device(int index) { return {kType, static_cast<c10::DeviceIndex>(index)}; }

}  // namespace dear::stub_device
