#include "dear/testing/stub_device/meeting.h"

#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

namespace dear::stub_device {
namespace {

using ::c10d::ReduceOp;

at::Tensor reduced(const std::vector<at::Tensor>& sources, ReduceOp::RedOpType reduction) {
  const at::ScalarType type = sources[0].scalar_type();
  at::Tensor sum =
      type == at::kHalf || type == at::kBFloat16 ? sources[0].to(at::kFloat) : sources[0].clone();
  for (std::size_t i = 1; i < sources.size(); ++i) {
    switch (reduction) {
      case ReduceOp::SUM:
      case ReduceOp::AVG:
        sum.add_(sources[i]);
        break;
      case ReduceOp::PRODUCT:
        sum.mul_(sources[i]);
        break;
      case ReduceOp::MAX:
        sum = at::maximum(sum, sources[i].to(sum.scalar_type()));
        break;
      case ReduceOp::MIN:
        sum = at::minimum(sum, sources[i].to(sum.scalar_type()));
        break;
      default:
        TORCH_CHECK(false,
                    "the process group of the stub device has sums, averages, products, maxima and minima");
    }
  }
  if (reduction == ReduceOp::AVG) sum.div_(static_cast<double>(sources.size()));
  return sum;
}

void check(const std::vector<Part*>& parts) {
  const Part& first = *parts[0];
  for (std::size_t rank = 1; rank < parts.size(); ++rank) {
    const Part& other = *parts[rank];
    bool same = other.movement == first.movement && other.reduction == first.reduction &&
                other.root == first.root && other.inputs.size() == first.inputs.size();
    for (std::size_t i = 0; same && i < first.inputs.size(); ++i)
      same = other.inputs[i].numel() == first.inputs[i].numel() &&
             other.inputs[i].scalar_type() == first.inputs[i].scalar_type();
    const auto count = [](const Part& part) { return part.inputs.empty() ? 0 : part.inputs[0].numel(); };
    TORCH_CHECK(same, "rank 0 calls ", name_of(first.movement), " of ", count(first), " elements, rank ",
                rank, " ", name_of(other.movement), " of ", count(other));
  }
}

void carry_out(const std::vector<Part*>& parts) {
  check(parts);
  const std::size_t ranks = parts.size();
  // Computes what every output becomes, before any is written: outputs may lie in inputs.
  std::vector<std::vector<at::Tensor>> results(ranks);
  const auto inputs_at = [&](std::size_t place) {
    std::vector<at::Tensor> sources;
    for (const Part* const part : parts) sources.push_back(part->inputs.at(place));
    return sources;
  };
  switch (parts[0]->movement) {
    case Movement::barrier:
      return;
    case Movement::all_reduce: {
      const at::Tensor sum = reduced(inputs_at(0), parts[0]->reduction);
      for (auto& result : results) result = {sum};
      break;
    }
    case Movement::reduce_scatter:
      for (std::size_t rank = 0; rank < ranks; ++rank)
        results[rank] = {reduced(inputs_at(rank), parts[0]->reduction)};
      break;
    case Movement::broadcast:
      for (auto& result : results)
        result = {parts.at(static_cast<std::size_t>(parts[0]->root))->inputs.at(0).clone()};
      break;
    case Movement::all_gather:
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const at::Tensor own = parts[rank]->inputs.at(0).clone();
        for (auto& result : results) result.push_back(own);
      }
      break;
    case Movement::all_to_all:
      for (std::size_t to = 0; to < ranks; ++to)
        for (const at::Tensor& source : inputs_at(to)) results[to].push_back(source.clone());
      break;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < parts[rank]->outputs.size(); ++i) {
      at::Tensor& output = parts[rank]->outputs[i];
      output.copy_(results[rank].at(i).view_as(output));
    }
}

}  // namespace

const char* name_of(Movement movement) {
  switch (movement) {
    case Movement::all_gather:
      return "all_gather";
    case Movement::all_reduce:
      return "all_reduce";
    case Movement::all_to_all:
      return "all_to_all";
    case Movement::barrier:
      return "barrier";
    case Movement::broadcast:
      return "broadcast";
    case Movement::reduce_scatter:
      return "reduce_scatter";
  }
  return "?";
}

std::shared_ptr<Meeting::One> Meeting::next(int rank) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = taken_[rank]++;
  std::shared_ptr<One>& one = under_way_[number];
  if (!one) {
    one = std::make_shared<One>();
    one->parts.resize(static_cast<std::size_t>(ranks_));
  }
  std::shared_ptr<One> found = one;
  if (++found->enqueued == ranks_) under_way_.erase(number);  // all hold it
  return found;
}

void Meeting::enqueue(int rank, c10::Stream stream, Part part) {
  const std::shared_ptr<One> one = next(rank);
  const char* const name = name_of(part.movement);
  Streams::all().run(stream, name,
                     [rank, one, part = std::move(part)]() mutable { come(rank, *one, std::move(part)); });
  Streams::all().wait(stream, one->over, std::string("wait of ") + name);
}

void Meeting::come(int rank, One& one, Part part) {
  std::vector<Part*> all;
  {
    const std::lock_guard lock(one.mutex);
    one.parts[static_cast<std::size_t>(rank)] = std::make_unique<Part>(std::move(part));
    for (const auto& there : one.parts)
      if (there) all.push_back(there.get());
  }
  if (all.size() < one.parts.size()) return;
  carry_out(all);
  Streams::all().complete(one.over);
}

void OverBackend::enqueue(int rank, c10::Stream stream, Part part) {
  const char* const name = name_of(part.movement);
  Streams::all().run(stream, name, [rank, backend = backend_, part = std::move(part)]() mutable {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& input : part.inputs) flat.push_back(input.reshape({-1}));
    at::Tensor mine = at::cat(flat);
    at::Tensor all = at::empty({backend->getSize() * mine.numel()}, mine.options());
    backend->_allgather_base(all, mine)->wait();
    std::vector<Part> parts;
    std::vector<Part*> pointers;
    for (int of = 0; of < backend->getSize(); ++of) {
      Part& one = parts.emplace_back(
          Part{part.movement,
               all.view({backend->getSize(), -1})[of].chunk(static_cast<std::int64_t>(flat.size())),
               {},
               part.reduction,
               part.root});
      if (of == rank) one.outputs = part.outputs;
    }
    for (Part& one : parts) pointers.push_back(&one);
    carry_out(pointers);
  });
}

}  // namespace dear::stub_device
