#include "dear/train/autograd/operator_observer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <string>

#include <torch/csrc/jit/serialization/pickler_helper.h>

#include "dear/base/vocabulary/error.h"

namespace dear::autograd {
namespace {

constexpr std::size_t kSlots = 64;

struct Slot {
  bool taken = false;
  std::atomic<OperatorObserver*> enabled{nullptr};
  std::atomic<int> visitors{0};  // threads that may be inside its observer
};

struct Table {
  std::mutex mutex;
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
  std::array<Slot, kSlots> slots;
  std::atomic<std::size_t> used{0};  // slots beyond it were never taken
  std::size_t enabled_count = 0;
};

Table& table() {
  static Table instance;  // see [Note: one observer for the process]
  return instance;
}

// Operators of any thread visit, so a observer may only go once nobody is inside. Both sides write one of the
// two atomics and then read the other, sequentially consistent: a visitor that was not counted in time finds
// the slot disabled.
class Visitor {
 public:
  explicit Visitor(Slot& slot) : slot_(slot) { slot_.visitors.fetch_add(1); }
  ~Visitor() {
    if (slot_.visitors.fetch_sub(1) == 1) slot_.visitors.notify_all();
  }
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;

 private:
  Slot& slot_;
};

void wait_for_visitors(Slot& slot) {
  for (int inside = slot.visitors.load(); inside != 0; inside = slot.visitors.load()) {
    slot.visitors.wait(inside);
  }
}

template <typename Visit>
void for_each_enabled(Visit visit) {
  Table& all = table();
  const std::size_t used = all.used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    Slot& slot = all.slots[i];
    if (!slot.enabled.load(std::memory_order_relaxed)) continue;
    const Visitor inside(slot);
    if (OperatorObserver* observer = slot.enabled.load()) visit(*observer);
  }
}

void touch(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  for_each_enabled([&](OperatorObserver& observer) { observer.touched(tensor); });
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
    for_each_enabled([](OperatorObserver& observer) { observer.backward_node(); });
    return nullptr;
  }
  // Called from a script, an operator shows the interpreter's whole stack, of which its inputs are the last.
  const c10::ArrayRef<const c10::IValue> shown = function.inputs();
  const std::size_t own = std::min(function.num_inputs(), shown.size());
  for (const c10::IValue& input : shown.slice(shown.size() - own)) touch(input);
  return nullptr;
}

}  // namespace

ObserverRegistration::ObserverRegistration(OperatorObserver& observer) : observer_(observer) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  for (slot_ = 0; slot_ < kSlots && all.slots[slot_].taken; ++slot_) {
  }
  if (slot_ == kSlots) {
    throw ConfigError("too many DataParallel objects live at once (64): destroy those that are done");
  }
  all.slots[slot_].taken = true;
  if (slot_ >= all.used.load()) all.used.store(slot_ + 1);
  if (all.callback == at::INVALID_CALLBACK_HANDLE) {
    all.callback =
        at::addGlobalCallback(at::RecordFunctionCallback(before_operator)
                                  .needsInputs(true)
                                  .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    at::disableCallback(all.callback);
  }
}

ObserverRegistration::~ObserverRegistration() {
  retreat();
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  all.slots[slot_].taken = false;
}

void ObserverRegistration::enable() {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  if (enabled_) return;
  enabled_ = true;
  all.slots[slot_].enabled.store(&observer_);
  if (all.enabled_count++ == 0) at::reenableCallback(all.callback);
}

void ObserverRegistration::disable() {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  if (!enabled_) return;
  enabled_ = false;
  all.slots[slot_].enabled.store(nullptr);
  if (--all.enabled_count == 0) at::disableCallback(all.callback);
}

void ObserverRegistration::retreat() {
  disable();
  wait_for_visitors(table().slots[slot_]);
}

void await_whole(const at::Tensor& tensor) {
  // Where a thread's operators are not observed, as in an update, its raw reads do not wait either: an update
  // would wait for itself.
  if (!tensor.defined() || !at::isRecordFunctionEnabled()) return;
  for_each_enabled([&](OperatorObserver& observer) {
    if (observer.touched(tensor)) observer.throw_if_failed();
  });
}

// Another thread may have held the mutex at the fork.
void stop_observing_after_fork() noexcept {
  for (Slot& slot : table().slots) slot.enabled.store(nullptr);
}

}  // namespace dear::autograd

// [Note: torch::save] Serialisation reads a parameter's memory without any operator, so the observer cannot
// see it. But all that libtorch saves or pickles passes through getWriteableTensorData(), which it calls
// across its dynamic symbol table: this definition stands before libtorch's own, makes the tensor whole, and
// goes on to the original. Where libtorch is linked so that it does not look there (-Bsymbolic), the tests of
// saving fail, and synchronize() before saving is the remedy.
namespace torch::jit {

__attribute__((visibility("default"))) WriteableTensorData getWriteableTensorData(const at::Tensor& tensor,
                                                                                  bool to_cpu) {
  using Get = WriteableTensorData (*)(const at::Tensor&, bool);
  static const auto original =
      reinterpret_cast<Get>(dlsym(RTLD_NEXT, "_ZN5torch3jit22getWriteableTensorDataERKN2at6TensorEb"));
  if (!original)
    throw dear::ConfigError("libtorch has no getWriteableTensorData: this version is not supported");
  dear::autograd::await_whole(tensor);
  return original(tensor, to_cpu);
}

}  // namespace torch::jit
