#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <torch/custom_class.h>
#include <torch/types.h>

// Layers whose weight gradients are nodes of autograd of their own. The backward of such a layer is cut in
// two. One node computes the gradient of the input, for which layers below wait, and leaves what the gradient
// of the weights needs. The other made a token from the weights; it computes their gradients when autograd
// comes to it: ordinary gradients, which hooks and optimisers see as always. A layer that is applied to the
// parts of a batch one after another has one such node for all of them, which makes one product over all rows
// in the order of the uncut batch: so the gradients have its bits.
namespace dear::systems::moe {

// Products have a multiple of so many rows, at least one such multiple, filled up with zeros: the BLAS rounds
// a row by how many there are, and by blocks of so many. Thus results depend neither on the parts nor on
// other rows.
inline constexpr std::int64_t kRows = 16;
[[nodiscard]] constexpr std::int64_t filled_up(std::int64_t rows) {
  return rows > kRows ? (rows + kRows - 1) / kRows * kRows : kRows;
}

enum class When : std::uint8_t { at_once, late };  // weight gradients: see order.h

// What the backward of one part leaves for the gradients of the weights.
struct LeftByPart {
  std::vector<torch::Tensor> tensors;
  std::shared_ptr<const void> of_part{};  // whatever else the owner needs
};

// The weights of a layer in one forward pass. A handle.
class SharedWeights {
 public:
  // Computes the gradients of the weights, in their order, from what each part left, in the order of parts.
  using Compute = std::function<std::vector<torch::Tensor>(const std::vector<LeftByPart>& parts)>;
  SharedWeights() = default;
  SharedWeights(const std::vector<torch::Tensor>& weights, When when, Compute compute);

  // What parts left of a backward pass that was broken off is dropped by the next.
  class Left : public torch::CustomClassHolder {
   public:
    // ConfigError where the backward pass is itself recorded: second derivatives are not there.
    void add(int part, LeftByPart left);
    [[nodiscard]] std::vector<torch::Tensor> compute_gradients();

   private:
    friend class SharedWeights;
    Compute compute_;
    int pass_ = -1;
    std::map<int, LeftByPart> parts_;
  };
  [[nodiscard]] const c10::intrusive_ptr<Left>& left() const { return left_; }
  // An input of each node of the layer, which returns zeros like it as its gradient once it has left its
  // part.
  [[nodiscard]] const torch::Tensor& token() const { return token_; }
  // Detached; undefined beyond the last.
  [[nodiscard]] torch::Tensor weight(std::size_t i) const {
    return i < detached_.size() ? detached_[i] : torch::Tensor();
  }

 private:
  c10::intrusive_ptr<Left> left_;
  torch::Tensor token_;
  std::vector<torch::Tensor> detached_;
};

// torch::nn::functional::linear() for the parts of a batch; `bias` may be undefined. Rows are filled up.
class LinearInParts {
 public:
  LinearInParts(const torch::Tensor& weight, const torch::Tensor& bias, When when);
  [[nodiscard]] torch::Tensor operator()(int part, const torch::Tensor& x) const;

 private:
  SharedWeights weights_;
};

// torch::nn::functional::layer_norm() over the last dimension for the parts of a batch.
class LayerNormInParts {
 public:
  LayerNormInParts(const torch::Tensor& weight, const torch::Tensor& bias, double epsilon, When when);
  [[nodiscard]] torch::Tensor operator()(int part, const torch::Tensor& x) const;

 private:
  SharedWeights weights_;
  double epsilon_;
};

// What nodes of this folder share.
[[nodiscard]] c10::IValue held(c10::intrusive_ptr<torch::CustomClassHolder> object);
template <typename T>
[[nodiscard]] c10::intrusive_ptr<T> held_in(const c10::IValue& value) {
  return c10::static_intrusive_pointer_cast<T>(value.toCapsule());
}

}  // namespace dear::systems::moe
