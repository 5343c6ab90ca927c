#include "dear/testing/stub_device/random.h"

#include <array>
#include <cstring>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include "dear/testing/stub_device/stub_device.h"

namespace dear::stub_device {
namespace {

// A seed, and how many operators drew from it.
class StubGenerator final : public c10::GeneratorImpl {
 public:
  explicit StubGenerator(int device)
      : GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)),
                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  void set_current_seed(std::uint64_t seed) override { state_ = {seed, 0}; }
  void set_offset(std::uint64_t offset) override { state_.drawn = offset; }
  std::uint64_t get_offset() const override { return state_.drawn; }
  std::uint64_t current_seed() const override { return state_.seed; }
  std::uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state_.seed;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == static_cast<std::int64_t>(sizeof(State)),
                "this is no state of a generator of the stub device");
    std::memcpy(&state_, state.data(), sizeof(State));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const at::Tensor state = at::empty({static_cast<std::int64_t>(sizeof(State))}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), &state_, sizeof(State));
    return state.getIntrusivePtr();
  }
  at::Generator draw() {
    // The finaliser of SplitMix64 (10.1145/2714064.2660195): neighbouring places get seeds that have nothing
    // in common.
    std::uint64_t z = state_.seed + ++state_.drawn * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return at::make_generator<at::CPUGeneratorImpl>(z ^ (z >> 31));
  }

 private:
  struct State {
    std::uint64_t seed = c10::default_rng_seed_val, drawn = 0;
  };
  StubGenerator* clone_impl() const override {
    auto* const copy = new StubGenerator(device().index());
    copy->state_ = state_;
    return copy;
  }
  State state_;
};

}  // namespace

at::Generator new_generator(int device) { return at::make_generator<StubGenerator>(device); }

at::Generator new_cpu_generator() { return at::make_generator<at::CPUGeneratorImpl>(0); }

const at::Generator& default_generator(int device) {
  static const auto* const all = [] {
    auto* const made = new std::array<at::Generator, kDevices>;
    for (int i = 0; i < kDevices; ++i) (*made)[static_cast<std::size_t>(i)] = new_generator(i);
    return made;
  }();
  return all->at(static_cast<std::size_t>(device));
}

at::Generator drawn(const at::Generator& given, int device) {
  at::Generator from = given.defined() ? given : default_generator(device);
  if (from.device().type() != c10::DeviceType::PrivateUse1) {
    TORCH_CHECK(false, "an operator on stub:", device, " was given a generator of ", from.device());
  }
  const std::lock_guard lock(from.mutex());
  return static_cast<StubGenerator*>(from.unsafeGetGeneratorImpl())->draw();
}

}  // namespace dear::stub_device
