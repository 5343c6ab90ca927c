#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/types.h>

#include "dear/workload/layers/workload.h"
#include "dear/workload/zoo/architecture.h"

namespace dear::train_command {

// Counts the kernels of one forward and one backward pass on this thread, and the memory that the forward
// pass leaves allocated, which is what its backward pass needs. Work belongs to the layer whose parameter was
// read last; in the backward pass, to the layer of the operator that is derived. Operators that only view a
// tensor count as none. All of one batch: a kernel's sizes are those of the whole.
class PassRecorder {
 public:
  struct LayerKernels {
    std::vector<zoo::Kernel> forward, backward;
  };

  // The parameters by their names in the workload; each has a storage of its own.
  explicit PassRecorder(const std::vector<std::pair<std::string, torch::Tensor>>& parameters);
  PassRecorder(const PassRecorder&) = delete;
  PassRecorder& operator=(const PassRecorder&) = delete;
  ~PassRecorder();

  // From forward_begins() to ends() all operators of this thread are counted.
  void forward_begins();
  void backward_begins();
  void ends();

  // By layer of a workload that was measured of the same model. `activation_bytes` of its layers are set,
  // too.
  [[nodiscard]] std::vector<LayerKernels> counted_in(Workload& workload) const;

 private:
  class Memory;
  struct Operator;
  struct Kernel {
    zoo::Kernel kernel;
    std::size_t read;  // how many parameters had been read
    bool backward;
  };

  static std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& function);
  static void operator_ends(const at::RecordFunction& function, at::ObserverContext* context);
  void begin(const at::RecordFunction& function, Operator& mine);
  void end(const at::RecordFunction& function, Operator& mine);
  void take_memory();

  std::map<const void*, std::string> name_of_;   // of a parameter, by its storage
  std::vector<std::string> reads_;               // names, in the order in which forward reads them
  std::map<std::int64_t, std::size_t> read_at_;  // by an operator's number in the graph of autograd
  std::vector<Kernel> kernels_;
  std::vector<std::pair<std::size_t, std::int64_t>> allocated_;  // bytes more, and the reads before
  std::size_t derived_ = 0;                                      // what the operator in derivation had read
  Operator* innermost_ = nullptr;
  bool backward_ = false;
  std::shared_ptr<Memory> memory_;
  std::unique_ptr<c10::DebugInfoGuard> watches_memory_;
  std::optional<at::CallbackHandle> callback_;
};

}  // namespace dear::train_command
