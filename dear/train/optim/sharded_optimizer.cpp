#include "dear/train/optim/sharded_optimizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

namespace dear::optim {
namespace {

// A tensor of fp32 of this one's shape, all elements of which are one: what stands for a copy between
// updates.
torch::Tensor without_memory(const torch::Tensor& tensor) {
  return torch::zeros({1}, tensor.options().dtype(at::kFloat)).expand(tensor.sizes());
}

// Where an element of the bucket is none of the two numbers of bf16 around its master, the program wrote
// there.
void take_written(const torch::Tensor& in_bucket, torch::Tensor& masters) {
  const auto* now = in_bucket.const_data_ptr<at::BFloat16>();
  auto* master = masters.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < masters.numel(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(master[i]);
    const std::uint32_t inner = bits >> 16U, outer = inner + ((bits & 0xffffU) != 0 ? 1 : 0);
    if (now[i].x != inner && now[i].x != outer) master[i] = static_cast<float>(now[i]);
  }
}

}  // namespace

namespace {

class Idle : public FlatOptimizer {
 public:
  void capture_options() override {}
  [[nodiscard]] bool has_current_options() const override { return true; }
  void step(const std::vector<std::vector<torch::Tensor>>& /*by_group*/) override {}
  [[nodiscard]] std::optional<OptimizerState> state(std::size_t /*group*/,
                                                    const torch::Tensor& /*tensor*/) const override {
    return std::nullopt;
  }
  void set_state(std::size_t /*group*/, const torch::Tensor& /*tensor*/,
                 const std::optional<OptimizerState>& /*state*/) override {}
};

}  // namespace

std::unique_ptr<FlatOptimizer> make_idle() { return std::make_unique<Idle>(); }

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<FlatOptimizer> flat_optimizer,
                                   std::size_t parameter_groups,
                                   std::vector<std::vector<FlatRun>> runs_by_part, const Widening& widening,
                                   std::size_t norms, SumOverRanks sum_over_ranks)
    : flat_optimizer_(std::move(flat_optimizer)),
      updates_(runs_by_part.size(), widening.rounding ? widening.rounding->update : 0),
      begun_(runs_by_part.size()),
      widening_(widening),
      norms_(norms),
      sum_over_ranks_(std::move(sum_over_ranks)) {
  for (auto& runs : runs_by_part) {
    auto& by_group = runs_.emplace_back(parameter_groups);
    for (FlatRun& run : runs) {
      torch::Tensor parameters = run.parameters;
      if (widening.widens(parameters.scalar_type())) {
        parameters =
            widening.masters == Masters::fp32 ? parameters.to(at::kFloat) : without_memory(parameters);
      } else {
        parameters.mutable_grad() = run.gradients;
      }
      by_group.at(run.parameter_group)
          .push_back(
              {parameters, run.parameters, run.gradients, std::move(run.stretches), run.parameter_group});
    }
  }
}

// Each gets the state of its elements. `borders`: of the stretches with which a new run begins.
ShardedOptimizer::Runs ShardedOptimizer::cut(const Run& run, const std::vector<std::size_t>& borders) {
  const std::optional<OptimizerState> state = flat_optimizer_->state(run.group, run.parameters);
  Runs parts;
  for (std::size_t i = 0; i < borders.size(); ++i) {
    const std::size_t last = i + 1 < borders.size() ? borders[i + 1] : run.stretches.size();
    Run part{.parameters = {}, .in_bucket = {}, .gradients = {}, .stretches = {}, .group = run.group};
    const std::int64_t begin = run.stretches[borders[i]].begin;
    const std::int64_t count = run.stretches[last - 1].end - begin;
    for (std::size_t s = borders[i]; s < last; ++s) {
      Stretch stretch = run.stretches[s];
      stretch.begin -= begin;
      stretch.end -= begin;
      part.stretches.push_back(stretch);
    }
    part.in_bucket = run.in_bucket.narrow(0, begin, count);
    part.gradients = run.gradients.narrow(0, begin, count);
    part.parameters = run.parameters.narrow(0, begin, count);
    if (!run.is_wide()) part.parameters.mutable_grad() = part.gradients;
    if (state) {
      OptimizerState own{.vectors = {}, .scalars = state->scalars};
      for (const auto& [name, vector] : state->vectors)
        own.vectors[name] = vector.narrow(0, begin, count).clone();
      flat_optimizer_->set_state(run.group, part.parameters, own);
    }
    parts.push_back(std::move(part));
  }
  flat_optimizer_->set_state(run.group, run.parameters, std::nullopt);
  return parts;
}

void ShardedOptimizer::separate(
    Runs& runs, const std::function<bool(const Run&, const Stretch&, const Stretch&)>& alike) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<std::size_t> borders{0};
    for (std::size_t s = 1; s < runs[i].stretches.size(); ++s)
      if (!alike(runs[i], runs[i].stretches[s - 1], runs[i].stretches[s])) borders.push_back(s);
    if (borders.size() == 1) continue;
    Runs parts = cut(runs[i], borders);
    const auto at = runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(i));
    runs.insert(at, std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end()));
    i += borders.size() - 1;
  }
}

void ShardedOptimizer::update(std::size_t part) {
  const auto unused = [this](const Run& run, const Stretch& stretch) {
    if (!run.gradients.is_cpu()) return !left_out_.empty() && left_out_.at(stretch.tensor);
    return is_marked_unused(run.gradients, {stretch.begin, stretch.begin + stretch.elements});
  };
  std::vector<std::vector<torch::Tensor>> updated(runs_.at(part).size());
  std::vector<Run*> wide;
  std::vector<TensorId> tensors;
  for (std::size_t group = 0; group < updated.size(); ++group) {
    Runs& runs = runs_[part][group];
    separate(runs, [&](const Run& run, const Stretch& a, const Stretch& b) {
      return unused(run, a) == unused(run, b);
    });
    for (Run& run : runs) {
      if (unused(run, run.stretches.front())) continue;
      updated[group].push_back(run.parameters);
      tensors.push_back(run.stretches.front().tensor);
      if (!run.is_wide()) continue;
      wide.push_back(&run);
      widen(run);
    }
  }
  if (found_.defined()) {
    flat_optimizer_->step_unless(updated, found_);
  } else if (norms_ == 0) {
    flat_optimizer_->step(updated);
  } else {
    step_with_norms(part, updated, tensors);
  }
  begun_[part] = true;
  for (Run* run : wide) narrow(*run, updates_[part]);
  ++updates_[part];
}

bool ShardedOptimizer::skips_on_device() const {
  return norms_ == 0 && flat_optimizer_->skips_on_device() &&
         std::all_of(begun_.begin(), begun_.end(), [](bool begun) { return begun; });
}

void ShardedOptimizer::widen(Run& run) const {
  if (widening_.masters == Masters::none) {
    run.parameters.set_data(run.in_bucket.to(at::kFloat));
  } else if (widening_.rounding && run.in_bucket.scalar_type() == at::kBFloat16) {
    take_written(run.in_bucket, run.parameters);
  } else {
    const torch::Tensor written = run.parameters.to(run.in_bucket.scalar_type()) != run.in_bucket;
    run.parameters.copy_(torch::where(written, run.in_bucket.to(at::kFloat), run.parameters));
  }
  run.parameters.mutable_grad() = run.gradients.to(at::kFloat);
}

void ShardedOptimizer::narrow(Run& run, std::int64_t update) const {
  run.parameters.mutable_grad().reset();
  if (widening_.rounding && run.in_bucket.scalar_type() == at::kBFloat16) {
    const RoundingKey key{.seed = widening_.rounding->seed, .update = update};
    const auto* from = run.parameters.const_data_ptr<float>();
    auto* to = run.in_bucket.mutable_data_ptr<at::BFloat16>();
    for (const Stretch& one : run.stretches)
      round_stochastically(from + one.begin, to + one.begin, one.elements, key, one.tensor, one.offset);
  } else {
    run.in_bucket.copy_(run.parameters);
  }
  if (widening_.masters == Masters::none) run.parameters.set_data(without_memory(run.parameters));
}

void ShardedOptimizer::step_with_norms(std::size_t part,
                                       const std::vector<std::vector<torch::Tensor>>& updated,
                                       const std::vector<TensorId>& tensors) {
  const std::vector<ExactSum> mine = flat_optimizer_->begin_step(updated);
  SumsOfTensors whole;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    std::vector<ExactSum>& of_tensor = whole[tensors[i / norms_]];
    of_tensor.resize(norms_);
    of_tensor[i % norms_].add(mine[i]);
  }
  if (sum_over_ranks_) sum_over_ranks_(part, whole);
  std::vector<double> norms;
  for (const TensorId tensor : tensors)
    for (const ExactSum& sum : whole.at(tensor)) norms.push_back(std::sqrt(sum.value()));
  flat_optimizer_->end_step(norms);
}

ShardedOptimizer::Memory ShardedOptimizer::memory() const {
  Memory memory;
  for (const auto& by_group : runs_)
    for (const Runs& runs : by_group)
      for (const Run& run : runs) {
        if (run.is_wide() && widening_.masters != Masters::none)
          memory.masters += static_cast<std::int64_t>(run.parameters.nbytes());
        if (const std::optional<OptimizerState> state = flat_optimizer_->state(run.group, run.parameters))
          for (const auto& [name, vector] : state->vectors)
            memory.state += static_cast<std::int64_t>(vector.nbytes());
      }
  return memory;
}

std::optional<OptimizerState> ShardedOptimizer::state_of(const Run& run) const {
  std::optional<OptimizerState> state = flat_optimizer_->state(run.group, run.parameters);
  if (!run.is_wide() || widening_.masters == Masters::none) return state;
  if (!state) state.emplace();
  state->vectors[kMaster] = run.parameters;
  return state;
}

void ShardedOptimizer::read_outlines(std::size_t part, Outlines& outlines) const {
  for (const Runs& runs : runs_.at(part)) {
    for (const Run& run : runs) {
      const std::optional<OptimizerState> state = state_of(run);
      if (!state) continue;
      Outline outline{.vectors = {}, .scalars = state->scalars};
      for (const auto& vector : state->vectors) outline.vectors.insert(vector.first);
      for (const Stretch& stretch : run.stretches) outlines.at(stretch.tensor) = outline;
    }
  }
}

namespace {

// A run lies in its bucket's flat vector, so it knows where it begins.
torch::Tensor place_in(const torch::Tensor& flat, const torch::Tensor& in_bucket) {
  return flat.as_strided(in_bucket.sizes(), in_bucket.strides(), in_bucket.storage_offset());
}

}  // namespace

void ShardedOptimizer::read_state(std::size_t part, const std::string& vector, torch::Tensor& flat) const {
  for (const Runs& runs : runs_.at(part)) {
    for (const Run& run : runs) {
      const std::optional<OptimizerState> state = state_of(run);
      if (!state) continue;
      const auto found = state->vectors.find(vector);
      if (found != state->vectors.end()) place_in(flat, run.in_bucket).copy_(found->second);
    }
  }
}

void ShardedOptimizer::visit_state(std::size_t part,
                                   const std::function<void(const StretchOfState&)>& visit) const {
  for (const Runs& runs : runs_.at(part)) {
    for (const Run& run : runs) {
      const std::optional<OptimizerState> state = state_of(run);
      if (!state) continue;
      for (const auto& [name, values] : state->vectors) {
        torch::Tensor flat = values;
        if (values.dim() != 1) {  // of a tensor whole: in the order in which the bucket has its elements
          flat = torch::empty({values.numel()}, values.options());
          flat.as_strided(run.in_bucket.sizes(), run.in_bucket.strides()).copy_(values);
        }
        for (const Stretch& stretch : run.stretches)
          visit({stretch.tensor, name, run.in_bucket.storage_offset() + stretch.begin,
                 flat.narrow(0, stretch.begin, stretch.elements)});
      }
    }
  }
}

void ShardedOptimizer::write_state(std::size_t part, const Outlines& outlines,
                                   const std::map<std::string, torch::Tensor>& flat) {
  begun_.at(part) = false;
  for (Runs& runs : runs_.at(part)) {
    separate(runs, [&](const Run&, const Stretch& a, const Stretch& b) {
      return outlines.at(a.tensor) == outlines.at(b.tensor);
    });
    for (Run& run : runs) {
      const std::optional<Outline>& outline = outlines.at(run.stretches.front().tensor);
      std::optional<OptimizerState> state;
      if (outline) {
        state = OptimizerState{.vectors = {}, .scalars = outline->scalars};
        for (const std::string& name : outline->vectors)
          state->vectors[name] = place_in(flat.at(name), run.in_bucket).clone();
        if (run.is_wide() && widening_.masters == Masters::fp32) {
          if (auto master = state->vectors.extract(kMaster)) run.parameters.copy_(master.mapped());
          if (state->vectors.empty() && state->scalars.empty()) state.reset();
        }
      }
      flat_optimizer_->set_state(run.group, run.parameters, state);
    }
  }
}

namespace {

template <typename Bits>
bool all_are(const torch::Tensor& values, const Range& elements, Bits bits) {
  const auto* all = static_cast<const Bits*>(values.const_data_ptr());
  return std::all_of(all + elements.begin, all + elements.end, [bits](Bits value) { return value == bits; });
}

// Whether all elements have the bits of +0.0, or of -0.0.
bool all_zero(const torch::Tensor& values, const Range& elements, std::uint64_t sign) {
  switch (values.element_size()) {
    case 2:
      return all_are(values, elements, static_cast<std::uint16_t>(sign << 15U));
    case 4:
      return all_are(values, elements, static_cast<std::uint32_t>(sign << 31U));
    default:
      return all_are(values, elements, sign << 63U);
  }
}

}  // namespace

void mark_unused(torch::Tensor& gradients, const Range& elements) {
  if (!all_zero(gradients, elements, 0)) return;
  gradients.narrow(0, elements.begin, elements.size()).fill_(-0.0);
}

bool is_marked_unused(const torch::Tensor& gradients, const Range& elements) {
  return all_zero(gradients, elements, 1);
}

}  // namespace dear::optim
