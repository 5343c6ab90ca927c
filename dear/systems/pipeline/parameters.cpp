#include "dear/systems/pipeline/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"

namespace dear::systems::pipeline {
namespace {

std::string_view bytes_of(const torch::Tensor& contiguous) {
  return {static_cast<const char*>(contiguous.const_data_ptr()), contiguous.nbytes()};
}

}  // namespace

torch::Tensor broadcast(const Group& group, const torch::Tensor& tensor, int from) {
  torch::Tensor whole = tensor.detach().clone(at::MemoryFormat::Contiguous);
  const auto bytes = static_cast<std::int64_t>(whole.nbytes());
  if (bytes == 0) return whole;
  const Buffer buffer = group.allocate(bytes);
  if (group.rank() == from) std::memcpy(buffer.data(), whole.const_data_ptr(), whole.nbytes());
  group.broadcast({.buffer = buffer, .count = bytes, .dtype = DType::u8}, from).wait();
  if (group.rank() != from) std::memcpy(whole.mutable_data_ptr(), buffer.data(), whole.nbytes());
  return whole;
}

Parameters::Parameters(const Job& job, const Group& group) : group_(group), replicas_(job.replicas) {
  std::map<int, std::size_t> ends;  // by stage of this rank, where its backward passes end
  for (std::size_t i = 0; i < job.order.size(); ++i)
    if (methods::pipeline::releases(job.order[i].kind)) ends[job.order[i].stage] = i;
  const auto add = [&](const auto& named, bool is_parameter) {
    for (const auto& item : named) {
      const torch::Tensor& tensor = item.value();
      const auto found = std::find_if(all_.begin(), all_.end(),
                                      [&](const Named& one) { return one.tensor.is_same(tensor); });
      if (found != all_.end()) {
        found->names.push_back(item.key());
        continue;
      }
      all_.push_back({.names = {item.key()},
                      .tensor = tensor,
                      .what = {.sizes = tensor.sizes().vec(), .type = tensor.scalar_type()},
                      .is_parameter = is_parameter});
    }
  };
  add(job.model.root().named_parameters(), true);
  add(job.model.root().named_buffers(), false);
  for (Named& one : all_) {
    const PipelineModel::Operator* changes = nullptr;
    for (const Stage& stage : job.stages.stages) {
      for (std::int64_t op = stage.operators.begin; op < stage.operators.end; ++op) {
        const SampledOperator& found = job.sampled.operators[static_cast<std::size_t>(op)];
        if (std::none_of(found.uses.begin(), found.uses.end(),
                         [&](const auto& other) { return other.is_same(one.tensor); }))
          continue;
        if (stage.rank == job.rank && (!std::count(one.holders.begin(), one.holders.end(), job.rank) ||
                                       ends[stage.number] > ends[one.last_stage]))
          one.last_stage = stage.number;
        one.holders.push_back(stage.rank);
        if (found.changes_buffers) changes = &job.model.operators()[static_cast<std::size_t>(op)];
      }
    }
    if (one.holders.empty()) one.holders = {job.rank % replicas_};
    std::sort(one.holders.begin(), one.holders.end());
    one.holders.erase(std::unique(one.holders.begin(), one.holders.end()), one.holders.end());
    if (!one.is_parameter && changes != nullptr && one.holders.size() > 1)
      throw ConfigError(
          fmt::format("operator '{}' changes the buffer '{}', as of batch statistics, which other ranks have "
                      "as well: give "
                      "each use a module of its own",
                      changes->name, one.names.front()));
  }
}

void Parameters::begin() {
  const torch::NoGradGuard no_grad;
  std::vector<std::uint64_t> digests;
  for (const Named& one : all_)
    digests.push_back(Digest().add(bytes_of(one.tensor.detach().contiguous())).value());
  const std::vector<std::byte> everyone = comm::all_gather_bytes(group_, std::as_bytes(std::span(digests)));
  const auto of = [&](int rank, std::size_t i) {
    std::uint64_t digest = 0;
    std::memcpy(&digest,
                everyone.data() + (static_cast<std::size_t>(rank) * digests.size() + i) * sizeof digest,
                sizeof digest);
    return digest;
  };
  for (std::size_t i = 0; i < all_.size(); ++i) {
    Named& one = all_[i];
    bool differs = false;
    for (const int holder : one.holders)
      for (int rank = holder / replicas_ * replicas_; rank < (holder / replicas_ + 1) * replicas_; ++rank)
        differs |= of(rank, i) != of(0, i);
    if (differs) one.tensor.copy_(broadcast(group_, one.tensor, 0));
    if (has(one)) continue;
    one.tensor.mutable_grad().reset();
    one.tensor.set_data(torch::empty({0}, one.tensor.options()));
  }
}

Tensors Parameters::own() const {
  Tensors own;
  for (const Named& one : all_)
    if (one.is_parameter && has(one)) own.push_back(one.tensor);
  return own;
}

bool Parameters::has(const Named& one) const {
  return std::find(one.holders.begin(), one.holders.end(), group_.rank()) != one.holders.end();
}
bool Parameters::is_together(const Named& one) const {
  return is_tied(one) || (replicas_ > 1 && one.is_parameter && one.tensor.requires_grad() && has(one));
}
bool Parameters::is_tied(const Named& one) const {
  return one.is_parameter && one.tensor.requires_grad() && one.holders.size() > 1 && has(one);
}

Tensors Parameters::put_aside() const {
  Tensors earlier;
  for (const Named& one : all_) {
    if (!is_together(one)) continue;
    torch::Tensor tensor = one.tensor;
    earlier.push_back(tensor.grad());
    tensor.mutable_grad().reset();
  }
  return earlier;
}

void Parameters::add_earlier(const Tensors& earlier) const {
  const torch::NoGradGuard no_grad;
  auto before = earlier.begin();
  for (const Named& one : all_) {
    if (!is_together(one)) continue;
    torch::Tensor tensor = one.tensor;
    if (before->defined())
      tensor.mutable_grad() = tensor.grad().defined() ? *before + tensor.grad() : *before;
    ++before;
  }
}

Tensors Parameters::whole_after(std::optional<int> stage) const {
  Tensors found;
  for (const Named& one : all_)
    if (one.is_parameter && one.tensor.requires_grad() && has(one) && is_tied(one) == !stage &&
        (!stage || one.last_stage == *stage))
      found.push_back(one.tensor);
  return found;
}

void Parameters::add_tied(Wire& wire) const {
  const torch::NoGradGuard no_grad;
  for (const Named& one : all_) {
    if (!is_tied(one)) continue;
    torch::Tensor tensor = one.tensor;
    const std::string what = fmt::format("the gradient of the tied parameter '{}'", one.names.front());
    torch::Tensor sum = tensor.grad().defined() ? tensor.grad().contiguous().clone()
                                                : torch::zeros_like(tensor, at::MemoryFormat::Contiguous);
    const torch::Tensor bytes = sum.view(-1).view(at::kByte);
    const int first = one.holders.front();
    if (group_.rank() == first) {
      for (auto rank = one.holders.begin() + 1; rank != one.holders.end(); ++rank) {
        const torch::Tensor other = torch::empty_like(sum);
        wire.exchange(false, *rank, other.view(-1).view(at::kByte), what);
        sum += other;
      }
      for (auto rank = one.holders.begin() + 1; rank != one.holders.end(); ++rank)
        wire.exchange(true, *rank, bytes, what);
    } else {
      wire.exchange(true, first, bytes, what);
      wire.exchange(false, first, bytes, what);
    }
    tensor.mutable_grad() = sum;
  }
}

double Parameters::clip(double max_norm) const {
  if (!(max_norm > 0) || !std::isfinite(max_norm))
    throw ConfigError(fmt::format("gradients are clipped to a norm of {}: give a number above 0", max_norm));
  const torch::NoGradGuard no_grad;
  double squares = 0;
  for (const Named& one : all_) {
    if (!one.is_parameter || speaker(one) != group_.rank() || !one.tensor.grad().defined()) continue;
    const auto norm = at::norm(one.tensor.grad(), 2, at::kDouble).item<double>();
    squares += norm * norm;
  }
  double sum = 0;
  for (const double of_rank : comm::all_gather_values(group_, squares)) sum += of_rank;
  const double norm = std::sqrt(sum);
  const double scale = max_norm / (norm + 1e-6);  // as torch::nn::utils::clip_grad_norm_
  if (scale >= 1) return norm;
  for (const Named& one : all_) {
    if (!one.is_parameter || !has(one) || !one.tensor.grad().defined()) continue;
    torch::Tensor gradient = one.tensor.grad();
    gradient.mul_(scale);
  }
  return norm;
}

Parameters::State Parameters::state() const {
  State state;
  for (const Named& one : all_) {
    const torch::Tensor mine =
        has(one) ? one.tensor : torch::empty(one.what.sizes, one.tensor.options().requires_grad(false));
    const torch::Tensor whole = broadcast(group_, mine, speaker(one));
    for (const std::string& name : one.names) state[name] = whole;
  }
  return state;
}

void Parameters::load(const State& state) const {
  const torch::NoGradGuard no_grad;
  std::size_t known = 0;
  for (const Named& one : all_)
    for (const std::string& name : one.names) {
      const auto found = state.find(name);
      if (found == state.end())
        throw ConfigError(fmt::format("the state has no '{}': give a whole state of this model", name));
      if (found->second.sizes() != at::IntArrayRef(one.what.sizes))
        throw ConfigError(fmt::format(
            "'{}' of the state has the shape [{}], and that of the model [{}]: give a state of this "
            "model",
            name, fmt::join(found->second.sizes(), ", "), fmt::join(one.what.sizes, ", ")));
      ++known;
    }
  if (known != state.size())
    throw ConfigError(fmt::format("the state has {} tensors, and the model {}: give a state of this model",
                                  state.size(), known));
  for (const Named& one : all_)
    if (has(one)) {
      torch::Tensor tensor = one.tensor;
      tensor.copy_(state.at(one.names.front()));
    }
}

}  // namespace dear::systems::pipeline
