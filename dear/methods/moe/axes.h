#pragma once

#include <string>
#include <vector>

#include "dear/methods/moe/instructions.h"

// Along which axes the instructions of a range can be cut into parts of the batch, so that part p of each
// needs part p of what it reads and nothing else: section 4.2 of Lancet (arXiv 2404.19429), without its
// solver. A value has one axis in a range, so what the first instruction reads settles nearly all others.
//
// An instruction that couples the samples of a batch must not be cut, and lists no cuts: a batch norm, a
// softmax over the batch, the mean of a loss, what changes a buffer, and what draws random numbers, since
// parts would draw in another order. A dropout that reads its mask can be cut.
namespace dear::methods::moe {

// How operators can be cut. Axis 0 of tokens is the batch. A buffer of tokens by expert has the axes expert,
// capacity, width.
std::vector<Cut> cuts_along(const std::vector<Axis>& axes, int reads,
                            int writes);  // elementwise, norms, attention
// Reads x of so many dimensions, and `given` values that stay whole: weight, bias. Never along the last one.
std::vector<Cut> cuts_of_matmul(int dimensions, int given = 1);
// Reads tokens and `given` values; writes the routing. Only for a gate that treats tokens in their order.
std::vector<Cut> cuts_of_gate(int given = 1);
std::vector<Cut> cuts_of_dispatch();  // reads tokens, routing; writes the buffer
// Cuts of all-to-alls and experts, which read a buffer and `given` values. Without a write: of the gradient
// of the experts' weights, whose parts add up.
std::vector<Cut> cuts_of_buffer(int given = 0, int writes = 1);
std::vector<Cut> cuts_of_combine();  // reads the buffer, routing; writes tokens

struct RangeAxes {
  // Those with a path to or from an all-to-all of the range, but for weight gradients that say no way to be
  // cut: the others stay whole. In order.
  std::vector<InstructionId> cut;
  std::vector<Axis> axis;  // by value; kWhole for what is not cut
  std::string refusal;     // why the range cannot be cut; else empty
  // The dimensions that are cut, each once.
  [[nodiscard]] std::vector<std::int64_t> dimensions(const InstructionGraph& graph) const;
};
// `range`: ids of consecutive instructions of the order. A value from outside of the range may be whole or
// cut, but along no irregular axis.
RangeAxes infer_axes(const InstructionGraph& graph, const std::vector<InstructionId>& range);

// Why a range of such dimensions cannot be cut into so many parts: each divides all dimensions, and leaves
// two samples or more. Else empty.
std::string refusal_of(const std::vector<std::int64_t>& dimensions, int parts);

}  // namespace dear::methods::moe
