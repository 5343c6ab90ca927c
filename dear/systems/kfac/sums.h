#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <torch/types.h>

#include "dear/systems/kfac/layers.h"

// Sums of outer products of which the factors of a layer are means.
//
// [Note: factors] With inputs a (a row a sample, and a 1 for the bias) and gradients g of a loss that is a
// mean over n samples, A is the mean of a^T a, and G that of (n g)^T (n g), over samples: the convention of
// Martens and Grosse. Rows of an input of more than 2 dimensions are samples: which is so where the loss is a
// mean over positions, as of a language model. Where it is a mean over sequences of T positions, G is T times
// that of KFAC-expand (Eschenhagen et al. 2023, arXiv 2311.00636): nothing in shapes tells which dimension is
// the batch, or what the loss is a mean over. Of a convolution with S
// positions in its output a row is a patch of the input, divided by S; A is the sum over positions and the
// mean over the batch, and G is S times the sum over positions (as in the public code of arXiv 2107.06533).
// So sums over samples and their number add up over uses of the layer, over passes and over ranks to those of
// one pass on all samples.
namespace dear::systems::kfac {

// Where a convolution takes its patches.
struct Patches {
  std::array<std::int64_t, 2> stride{1, 1}, dilation{1, 1};
  std::array<std::int64_t, 2> before{0, 0}, after{0, 0};  // padding of height and width
};

// The rows that one use of a layer adds to a factor.
struct Rows {
  torch::Tensor rows;  // [rows, dimension]: rows^T rows is added, times `scale`
  double scale = 1;
  double samples = 0;  // how many are added; 0: nothing is
};
// Both compute in `type`, which is fp32 or fp64. `patches`: for a convolution only.
Rows rows_of_input(const MatrixLayer& layer, const std::optional<Patches>& patches,
                   const torch::Tensor& input, at::ScalarType type);
Rows rows_of_gradient(const MatrixLayer& layer, const torch::Tensor& gradient, at::ScalarType type);

// The sum of a factor on this rank, between two renewals.
struct Sum {
  torch::Tensor products;  // [dimension, dimension]; undefined as long as there are no samples
  double samples = 0;
  std::int64_t uses = 0;
  void add(const Rows& rows);
  void clear() { samples = 0, uses = 0; }  // keeps the memory
};

}  // namespace dear::systems::kfac
