#include "dear/systems/kfac/sums.h"

namespace dear::systems::kfac {
namespace {

torch::Tensor with_ones(const torch::Tensor& rows, double one) {
  return torch::cat({rows, torch::full({rows.size(0), 1}, one, rows.options())}, 1);
}

}  // namespace

Rows rows_of_input(const MatrixLayer& layer, const std::optional<Patches>& patches,
                   const torch::Tensor& input, at::ScalarType type) {
  torch::Tensor values = input.to(type);
  if (!patches) {
    values = values.reshape({-1, values.size(-1)});
    const auto samples = static_cast<double>(values.size(0));
    return {.rows = layer.bias.defined() ? with_ones(values, 1) : values, .samples = samples};
  }
  if (values.dim() == 3) values = values.unsqueeze(0);
  std::array<std::int64_t, 2> padding = patches->before;
  if (patches->before != patches->after) {
    values = torch::constant_pad_nd(
        values, {patches->before[1], patches->after[1], patches->before[0], patches->after[0]});
    padding = {0, 0};
  }
  const auto samples = static_cast<double>(values.size(0));
  if (values.numel() == 0) return {};
  // [batch, inputs * height * width, positions]
  const torch::Tensor columns = at::im2col(values.contiguous(), layer.weight.sizes().slice(2),
                                           patches->dilation, padding, patches->stride);
  const auto positions = static_cast<double>(columns.size(2));
  torch::Tensor rows = columns.transpose(1, 2).reshape({-1, columns.size(1)});
  if (layer.bias.defined()) rows = with_ones(rows, 1);
  return {.rows = rows, .scale = 1 / (positions * positions), .samples = samples};
}

Rows rows_of_gradient(const MatrixLayer& layer, const torch::Tensor& gradient, at::ScalarType type) {
  torch::Tensor values = gradient.to(type);
  if (!layer.convolution()) {
    values = values.reshape({-1, values.size(-1)});
    const auto samples = static_cast<double>(values.size(0));
    return {.rows = values, .scale = samples * samples, .samples = samples};
  }
  if (values.dim() == 3) values = values.unsqueeze(0);
  const auto samples = static_cast<double>(values.size(0));
  const auto positions = static_cast<double>(values.size(2) * values.size(3));
  return {.rows = values.permute({0, 2, 3, 1}).reshape({-1, values.size(1)}),
          .scale = samples * samples * positions,
          .samples = samples};
}

void Sum::add(const Rows& added) {
  ++uses;
  if (added.samples == 0) return;
  if (!products.defined())
    products = torch::empty({added.rows.size(1), added.rows.size(1)}, added.rows.options());
  at::addmm_out(products, products, added.rows.t(), added.rows, samples == 0 ? 0.0 : 1.0, added.scale);
  samples += added.samples;
}

}  // namespace dear::systems::kfac
