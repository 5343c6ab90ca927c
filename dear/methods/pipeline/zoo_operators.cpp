#include "dear/methods/pipeline/zoo_operators.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/workload/zoo/architecture.h"

namespace dear::methods::pipeline {
namespace {

using Layer = zoo::Architecture::Layer;

// 87 on an RTX 2080 Ti, 70 on a V100, 38 on an A100 and 80 on an H100: operations in fp32 while an element of
// 4 bytes moves.
constexpr double kOperationsPerElement = 64;

double work_of(const std::vector<zoo::Kernel>& kernels, double samples) {
  double work = 0;
  for (const zoo::Kernel& kernel : kernels)
    work += kernel.kind == zoo::Kind::memory
                ? kOperationsPerElement * (samples * kernel.moved + kernel.weights)
                : samples * kernel.flops;
  return work;
}

// Products with the layer's own matrix: as many operations as the gradient of that matrix takes.
double matrix_work(const Layer& layer, double samples) {
  double work = 0;
  for (const zoo::Kernel& kernel : layer.forward)
    if (kernel.weights > 0) work += samples * kernel.flops;
  return work;
}

bool is_convolution(const Layer& layer) {
  return !layer.forward.empty() && layer.forward.front().kind == zoo::Kind::convolution;
}

std::string_view kind_of(const Layer& layer, bool has_inputs) {
  if (is_convolution(layer)) return "convolution";
  if (layer.matrix || !layer.tied.empty()) return "matmul";
  return has_inputs ? "norm" : "embedding";
}

// Makes operators of layers, one after the other.
class Reader {
 public:
  Reader(const zoo::Architecture& architecture, std::int64_t samples, DType dtype)
      : layers_(architecture.layers), samples_(samples), dtype_(dtype) {}

  [[nodiscard]] bool done() const { return operators_.size() == layers_.size(); }
  [[nodiscard]] const Layer& layer(std::size_t ahead = 0) const {
    return layers_.at(operators_.size() + ahead);
  }
  [[nodiscard]] bool next_ends_with(std::string_view end) const {
    return !done() && layer().name.ends_with(end);
  }
  // The next layer, whose output has so many elements a sample.
  OperatorId add(std::vector<OperatorId> inputs, std::int64_t elements) {
    return add_output(std::move(inputs), samples_ * elements);
  }
  OperatorId add_loss(std::vector<OperatorId> inputs) { return add_output(std::move(inputs), 1); }
  void tie(OperatorId owner) { operators_.back().tied = owner; }
  void pick_rows() { operators_.back().picks_rows = true; }
  [[nodiscard]] std::vector<Operator> take() && { return std::move(operators_); }

 private:
  OperatorId add_output(std::vector<OperatorId> inputs, std::int64_t elements) {
    const Layer& next = layer();
    const auto samples = static_cast<double>(samples_);
    const double backward = work_of(next.backward, samples), matrix = matrix_work(next, samples);
    Operator op{.name = next.name,
                .kind = std::string(kind_of(next, !inputs.empty())),
                .inputs = std::move(inputs),
                .forward_work = work_of(next.forward, samples),
                .output_bytes = elements * size_of(dtype_),
                .kept_bytes = samples_ * (next.kept_elements * size_of(dtype_) + next.kept_bytes),
                .dtype = dtype_};
    // Nobody asks for the gradient of the batch.
    op.weight_gradient_work = op.inputs.empty() ? backward : matrix;
    op.input_gradient_work = backward - op.weight_gradient_work;
    for (const zoo::Architecture::Parameter& parameter : next.parameters)
      op.parameter_bytes += parameter.elements * size_of(dtype_);
    operators_.push_back(std::move(op));
    return static_cast<OperatorId>(operators_.size() - 1);
  }

  const std::vector<Layer>& layers_;
  std::int64_t samples_;
  DType dtype_;
  std::vector<Operator> operators_;
};

void read_gpt2(Reader& reader, std::int64_t length) {
  const std::int64_t width = reader.layer(2).parameters.front().elements;  // of the first norm
  const std::int64_t elements = length * width;
  const OperatorId embedding = reader.add({}, elements);
  reader.pick_rows();
  OperatorId stream = reader.add({embedding}, elements);
  while (reader.next_ends_with(".ln_1")) {
    for (const std::int64_t inner : {elements, reader.layer(4).matrix->outputs * length}) {
      // A norm, two layers, and the sum with what the norm reads.
      const OperatorId norm = reader.add({stream}, elements);
      const OperatorId first = reader.add({norm}, inner);
      stream = reader.add({first, stream}, elements);
    }
  }
  const OperatorId norm = reader.add({stream}, elements);
  reader.add_loss({norm});
  reader.tie(embedding);
}

std::int64_t output_elements(const Layer& convolution) {
  return convolution.matrix->outputs * convolution.matrix->positions;
}

void read_resnet(Reader& reader) {
  const OperatorId stem = reader.add({}, output_elements(reader.layer()));
  // Pooled: the first block's first convolution keeps the size of its image.
  const zoo::Architecture::Matrix& first = *reader.layer(1).matrix;
  OperatorId stream = reader.add({stem}, reader.layer().parameters.front().elements * first.positions);
  while (!reader.next_ends_with("fc")) {
    const OperatorId block_input = stream;
    const auto in_block = [&](std::string_view what) {
      return !reader.done() && reader.layer().name.find(what) != std::string::npos;
    };
    bool is_first = true;
    while (in_block(".conv") && (is_first || !reader.next_ends_with(".conv1"))) {
      const std::int64_t elements = output_elements(reader.layer());
      const OperatorId convolution = reader.add({stream}, elements);
      is_first = false;
      const std::string& after = reader.layer(1).name;  // than the norm
      const bool ends = after.ends_with(".conv1") || after == "fc";
      std::vector<OperatorId> inputs{convolution};
      if (ends) inputs.push_back(block_input);
      // The last block's sum is pooled to one element a channel.
      stream = reader.add(inputs, after == "fc" ? reader.layer(1).matrix->inputs - 1 : elements);
    }
    if (in_block(".downsample")) {
      const std::int64_t elements = output_elements(reader.layer());
      const OperatorId convolution = reader.add({block_input}, elements);
      stream = reader.add({stream, convolution}, elements);
    }
  }
  reader.add_loss({stream});
}

}  // namespace

std::int64_t samples_of_micro_batch(std::int64_t batch, int micro_batches) {
  if (micro_batches < 1)
    throw ConfigError(
        fmt::format("a batch cannot be cut into {} micro-batches: give at least 1", micro_batches));
  if (batch < micro_batches || batch % micro_batches != 0)
    throw ConfigError(fmt::format("a batch of {} cannot be divided into {} micro-batches: give a multiple",
                                  batch, micro_batches));
  return batch / micro_batches;
}

OperatorDag operators_of(const zoo::Model& model, const ModelOptions& options) {
  const std::int64_t samples =
      samples_of_micro_batch(options.batch > 0 ? options.batch : model.batch, options.micro_batches);
  const std::int64_t size = options.size > 0 ? options.size : model.size;
  const zoo::Architecture architecture = model.make(size);
  Reader reader(architecture, samples, options.dtype.value_or(model.dtype));
  const std::string& last = architecture.layers.back().name;
  bool has_mixtures = false;
  for (const Layer& layer : architecture.layers) has_mixtures = has_mixtures || layer.name.ends_with(".gate");
  if (architecture.layers.front().name == "transformer.wte" && !has_mixtures) {
    read_gpt2(reader, size);
  } else if (architecture.layers.front().name == "conv1" && last == "fc") {
    read_resnet(reader);
  } else {
    throw ConfigError(
        fmt::format("which operator of '{}' reads which is not known: take a GPT-2 or ResNet, or "
                    "write its operators into a file (docs/formats.md)",
                    model.name));
  }
  return {std::string(model.name), std::move(reader).take()};
}

}  // namespace dear::methods::pipeline
