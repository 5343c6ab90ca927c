#include "dear/systems/pipeline/stages.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

#include <fmt/format.h>

#include "dear/base/vocabulary/ids.h"
#include "dear/schedule/codec/top_k.h"

namespace dear::systems::pipeline {
namespace {

constexpr std::int64_t kAlignment = 16;  // of each tensor in a message, so that it can be used in place

std::int64_t kept_of(const Crossing& one, double ratio) {
  return std::max<std::int64_t>(1,
                                static_cast<std::int64_t>(static_cast<double>(one.what.elements()) / ratio));
}
std::int64_t bytes_of(const Crossing& one, double ratio) {
  if (ratio <= 1) return one.what.bytes();
  return kept_of(one, ratio) * static_cast<std::int64_t>(sizeof(codec::Coordinate));
}
std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void write(const Crossing& one, double ratio, const torch::Tensor& tensor, std::byte* to) {
  const torch::Tensor flat = tensor.detach().contiguous();
  if (ratio <= 1) {
    if (flat.nbytes() > 0) std::memcpy(to, flat.const_data_ptr(), flat.nbytes());
    return;
  }
  const torch::Tensor values = flat.to(at::kFloat);
  std::vector<codec::Coordinate> chosen(static_cast<std::size_t>(kept_of(one, ratio)));
  codec::Selection().largest({values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel())},
                             chosen);
  std::memcpy(to, chosen.data(), chosen.size() * sizeof(codec::Coordinate));
}

torch::Tensor read(const Crossing& one, double ratio, const torch::Tensor& message, std::int64_t offset) {
  if (ratio <= 1) {
    if (one.what.bytes() == 0) return torch::empty(one.what.sizes, one.what.type);
    return message.narrow(0, offset, one.what.bytes()).view(one.what.type).view(one.what.sizes);
  }
  torch::Tensor values = torch::zeros(one.what.elements(), at::kFloat);
  auto* const to = values.data_ptr<float>();
  const auto* const from = static_cast<const std::byte*>(message.const_data_ptr()) + offset;
  for (std::int64_t i = 0; i < kept_of(one, ratio); ++i) {
    codec::Coordinate coordinate;
    std::memcpy(&coordinate, from + i * static_cast<std::int64_t>(sizeof coordinate), sizeof coordinate);
    if (coordinate.index < one.what.elements()) to[coordinate.index] = coordinate.value;
  }
  return values.to(one.what.type).view(one.what.sizes);
}

}  // namespace

bool Cut::carries(bool gradient) const {
  return std::any_of(crossings.begin(), crossings.end(),
                     [&](const Crossing& one) { return carries(one, gradient); });
}

std::int64_t Cut::bytes(bool gradient) const {
  std::int64_t bytes = 0;
  for (const Crossing& one : crossings)
    if (carries(one, gradient)) bytes += aligned(bytes_of(one, one.ratio(gradient)));
  return bytes;
}

torch::Tensor Cut::pack(bool gradient, const Tensors& tensors) const {
  torch::Tensor message = torch::zeros(bytes(gradient), at::kByte);
  auto* to = static_cast<std::byte*>(message.mutable_data_ptr());
  for (std::size_t i = 0; i < crossings.size(); ++i) {
    if (!carries(crossings[i], gradient)) continue;
    write(crossings[i], crossings[i].ratio(gradient), tensors[i], to);
    to += aligned(bytes_of(crossings[i], crossings[i].ratio(gradient)));
  }
  return message;
}

Tensors Cut::unpack(bool gradient, const torch::Tensor& message) const {
  Tensors tensors(crossings.size());
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < crossings.size(); ++i) {
    if (!carries(crossings[i], gradient)) continue;
    tensors[i] = read(crossings[i], crossings[i].ratio(gradient), message, offset);
    offset += aligned(bytes_of(crossings[i], crossings[i].ratio(gradient)));
  }
  return tensors;
}

Stages stages_of(const methods::pipeline::Plan& plan, const PipelineModel& model, const Sampled& sampled,
                 int replicas, int replica) {
  Stages found;
  const auto& operators = model.operators();
  std::vector<int> stage_of(operators.size());
  for (const methods::pipeline::Stage& stage : plan.stages) {
    const int number = static_cast<int>(found.stages.size());
    for (std::int64_t op = stage.operators.begin; op < stage.operators.end; ++op)
      stage_of[static_cast<std::size_t>(op)] = number;
    const std::string &first = operators[static_cast<std::size_t>(stage.operators.begin)].name,
                      &last = operators[static_cast<std::size_t>(stage.operators.end - 1)].name;
    found.stages.push_back({.number = number,
                            .rank = stage.device * replicas + replica,
                            .operators = stage.operators,
                            .text = stage.operators.size() == 1
                                        ? fmt::format("stage {} ('{}')", number, first)
                                        : fmt::format("stage {} ('{}' to '{}')", number, first, last)});
  }
  std::map<Value, int> last_reader;  // by value that an operator makes, its stage
  for (std::size_t op = 0; op < operators.size(); ++op)
    for (const Value& input : operators[op].inputs)
      if (input.maker >= 0) last_reader[input] = std::max(last_reader[input], stage_of[op]);
  found.cuts.resize(found.stages.size() - 1);
  for (const auto& [value, last] : last_reader) {
    for (int cut = stage_of[index_of(value.maker)]; cut < last; ++cut) {
      Crossing crossing{.value = value, .what = sampled[value]};
      for (const methods::pipeline::Message& message : plan.messages) {
        if (message.from_stage != cut || static_cast<int>(message.output) != value.maker ||
            !c10::isFloatingType(crossing.what.type) || crossing.what.elements() == 0)
          continue;
        crossing.activation_ratio = message.activation_ratio;
        crossing.gradient_ratio = message.gradient_ratio;
      }
      found.cuts[index_of(cut)].crossings.push_back(std::move(crossing));
    }
  }
  for (Cut& cut : found.cuts)
    cut.names =
        fmt::format("'{}'{}", operators[index_of(cut.crossings.front().value.maker)].name,
                    cut.crossings.size() == 1 ? "" : fmt::format(" and {} more", cut.crossings.size() - 1));
  return found;
}

}  // namespace dear::systems::pipeline
