#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Says what a neural network is before a device runs it: its layers, the shapes of their tensors, and the
// work and memory of one sample. Counted from shapes alone, so that a pencil can check it.
namespace dear::zoo {

// Says which part of a device bounds a kernel, and how near to its peak it comes.
enum class Kind : std::uint8_t { convolution, matmul, memory };

// One kernel. A multiply-add counts as two operations; those of memory-bound kernels (norms, activations,
// pools, copies) hide under their transfers and count as none.
struct Kernel {
  Kind kind = Kind::memory;
  double flops = 0;    // a sample
  double moved = 0;    // elements of activations read and written, a sample
  double weights = 0;  // elements of parameters, or of their gradients, read or written, a batch
};

struct Architecture {
  struct Parameter {
    std::string name;
    std::int64_t elements = 0;
  };

  // The weight of a layer that multiplies by one: its columns, of which a bias is the last, its rows, and the
  // places of a sample that it is applied to. Of a convolution: of the patches.
  struct Matrix {
    std::int64_t inputs = 0;
    std::int64_t outputs = 0;
    std::int64_t positions = 0;
  };

  // A module with parameters of its own, or one that reads a tied one. Work without parameters (pools,
  // attention, activations, the loss) stands with the layer before it: it may run before the parameters of
  // the next are there, and in backward it comes before the gradients of that layer.
  struct Layer {
    std::string name;
    std::vector<Parameter> parameters;  // its own, in the order of their registration
    std::vector<std::string> tied;      // parameters of earlier layers that it reads as well
    std::optional<Matrix> matrix{};     // none for norms, embeddings and what reads a tied weight
    std::vector<Kernel> forward;
    std::vector<Kernel> backward;
    // Counts what forward keeps for backward, a sample: elements of the activations' type, and bytes of masks
    // and indices, whose size no type changes. Each stored once, as eager PyTorch does, where activations
    // work in place if the published code lets them.
    std::int64_t kept_elements = 0;
    std::int64_t kept_bytes = 0;
    std::int64_t buffer_bytes = 0;  // running means and variances, in fp32 whatever the type of parameters
    std::int64_t buffers = 0;       // tensors of that
  };

  std::vector<Layer> layers;  // in forward order

  [[nodiscard]] std::int64_t parameters() const;  // elements of all, tied ones once
  [[nodiscard]] std::int64_t tensors() const;
  [[nodiscard]] double forward_flops() const;  // a sample
  [[nodiscard]] std::int64_t kept_elements() const;
  [[nodiscard]] std::int64_t kept_bytes() const;
  [[nodiscard]] std::int64_t buffer_bytes() const;
  [[nodiscard]] std::int64_t buffers() const;
};

double flops(const std::vector<Kernel>& kernels);

}  // namespace dear::zoo
