#include "dear/train/operator_observer.h"

#include <array>
#include <atomic>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <string>

#include <ATen/record_function.h>
#include <torch/serialize/output-archive.h>

#include "dear/base/error.h"

namespace dear::train {
namespace {

constexpr std::size_t kSlots = 64;

struct Table {
  std::mutex mutex;
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
  std::array<Watcher*, kSlots> registered{};
  std::array<std::atomic<Watcher*>, kSlots> enabled{};
  std::atomic<std::size_t> used{0};  // slots beyond it were never taken
  std::size_t enabled_count = 0;
};

Table& table() {
  static Table instance;  // see [Note: one observer for the process]
  return instance;
}

template <typename Visit>
void for_each_enabled(Visit visit) {
  Table& all = table();
  const std::size_t used = all.used.load(std::memory_order_acquire);
  for (std::size_t slot = 0; slot < used; ++slot) {
    if (Watcher* watcher = all.enabled[slot].load(std::memory_order_acquire)) visit(*watcher);
  }
}

void touch(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  for_each_enabled([&](Watcher& watcher) { watcher.touched(tensor); });
}

void touch(const c10::IValue& value) {
  if (value.isTensor()) {
    touch(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) touch(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) touch(element.toTensor());
    }
  }
}

std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& function) {
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    for_each_enabled([](Watcher& watcher) { watcher.backward_node(); });
    return nullptr;
  }
  for (const c10::IValue& input : function.inputs()) touch(input);
  return nullptr;
}

}  // namespace

Observation::Observation(Watcher& watcher) : watcher_(watcher) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  for (slot_ = 0; slot_ < kSlots && all.registered[slot_]; ++slot_) {
  }
  if (slot_ == kSlots) {
    throw ConfigError("too many DataParallel objects live at once (64): destroy those that are done");
  }
  all.registered[slot_] = &watcher;
  if (slot_ >= all.used.load()) all.used.store(slot_ + 1);
  if (all.callback == at::INVALID_CALLBACK_HANDLE) {
    all.callback =
        at::addGlobalCallback(at::RecordFunctionCallback(before_operator)
                                  .needsInputs(true)
                                  .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    at::disableCallback(all.callback);
  }
}

Observation::~Observation() {
  disable();
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  all.registered[slot_] = nullptr;
}

void Observation::enable() {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  if (enabled_) return;
  enabled_ = true;
  all.enabled[slot_].store(&watcher_, std::memory_order_release);
  if (all.enabled_count++ == 0) at::reenableCallback(all.callback);
}

void Observation::disable() {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  if (!enabled_) return;
  enabled_ = false;
  all.enabled[slot_].store(nullptr, std::memory_order_release);
  if (--all.enabled_count == 0) at::disableCallback(all.callback);
}

Unobserved::Unobserved() : previous_(at::isRecordFunctionEnabled()) { at::enableRecordFunction(false); }

Unobserved::~Unobserved() { at::enableRecordFunction(previous_); }

}  // namespace dear::train

// [Note: torch::save] Serialisation reads a parameter's memory without any operator, so the observer cannot
// see it. But each tensor of a module passes through OutputArchive::write when it is saved, which libtorch
// calls across its dynamic symbol table: this definition stands before libtorch's own, makes the tensor
// whole, and goes on to the original. Where libtorch is linked so that it does not look there (-Bsymbolic),
// the test of torch::save fails, and synchronize() before saving is the remedy.
namespace torch::serialize {

__attribute__((visibility("default"))) void OutputArchive::write(const std::string& key,
                                                                 const at::Tensor& tensor, bool is_buffer) {
  using Write = void (*)(OutputArchive*, const std::string&, const at::Tensor&, bool);
  static const auto original =
      reinterpret_cast<Write>(dlsym(RTLD_NEXT,
                                    "_ZN5torch9serialize13OutputArchive5writeERKNSt7__cxx1112basic_"
                                    "stringIcSt11char_traitsIcESaIcEEERKN2at6TensorEb"));
  if (!original)
    throw dear::ConfigError("libtorch has no OutputArchive::write: this version is not supported");
  dear::train::touch(tensor);
  dear::train::for_each_enabled([](dear::train::Watcher& watcher) { watcher.throw_if_failed(); });
  original(this, key, tensor, is_buffer);
}

}  // namespace torch::serialize
