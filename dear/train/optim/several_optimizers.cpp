// Several optimisers that train one model, as one.

#include <algorithm>
#include <utility>

#include "dear/base/vocabulary/error.h"
#include "dear/train/optim/framed.h"
#include "dear/train/optim/optimizer.h"

namespace dear {
namespace {

using ByGroup = std::vector<std::vector<torch::Tensor>>;

// The parameter groups of one of them.
struct Span {
  std::size_t first, count;
};

std::size_t index_of(const std::vector<Span>& spans, std::size_t group) {
  std::size_t i = 0;
  while (group >= spans.at(i).first + spans[i].count) ++i;
  return i;
}

ByGroup part_of(const ByGroup& all, const Span& span) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(span.first);
  return {begin, begin + static_cast<std::ptrdiff_t>(span.count)};
}

bool has_tensors(const ByGroup& given) {
  return std::any_of(given.begin(), given.end(), [](const auto& group) { return !group.empty(); });
}

class SeveralFlat : public FlatOptimizer {
 public:
  struct One {
    std::unique_ptr<FlatOptimizer> flat;
    std::size_t norms;
  };
  SeveralFlat(std::vector<One> all, std::vector<Span> spans)
      : all_(std::move(all)), spans_(std::move(spans)), given_(all_.size()) {}

  void capture_options() override {
    for (const One& one : all_) one.flat->capture_options();
  }
  [[nodiscard]] bool has_current_options() const override {
    return std::all_of(all_.begin(), all_.end(),
                       [](const One& one) { return one.flat->has_current_options(); });
  }
  [[nodiscard]] std::vector<torch::Tensor> option_tensors() const override {
    std::vector<torch::Tensor> tensors;
    for (const One& one : all_)
      for (torch::Tensor& tensor : one.flat->option_tensors()) tensors.push_back(std::move(tensor));
    return tensors;
  }
  void step(const ByGroup& by_group) override {
    for (std::size_t i = 0; i < all_.size(); ++i) step_one(i, part_of(by_group, spans_[i]));
  }
  [[nodiscard]] bool skips_on_device() const override {
    return std::all_of(all_.begin(), all_.end(), [](const One& one) { return one.flat->skips_on_device(); });
  }
  void step_unless(const ByGroup& by_group, const torch::Tensor& found) override {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const ByGroup given = part_of(by_group, spans_[i]);
      if (has_tensors(given)) all_[i].flat->step_unless(given, found);
    }
  }
  // Each tensor has as many norms as any; those that one does not take are of nothing.
  std::vector<ExactSum> begin_step(const ByGroup& by_group) override {
    std::size_t most = 0;
    for (const One& one : all_) most = std::max(most, one.norms);
    std::vector<ExactSum> sums;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      given_[i] = part_of(by_group, spans_[i]);
      std::size_t tensors = 0;
      for (const auto& group : given_[i]) tensors += group.size();
      const std::vector<ExactSum> mine =
          all_[i].norms > 0 ? all_[i].flat->begin_step(given_[i]) : std::vector<ExactSum>();
      for (std::size_t tensor = 0; tensor < tensors; ++tensor)
        for (std::size_t k = 0; k < most; ++k)
          sums.push_back(k < all_[i].norms ? mine[tensor * all_[i].norms + k] : ExactSum());
    }
    return sums;
  }
  void end_step(const std::vector<double>& norms) override {
    std::size_t most = 0, next = 0;
    for (const One& one : all_) most = std::max(most, one.norms);
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const ByGroup given = std::exchange(given_[i], {});
      std::vector<double> mine;
      for (const auto& group : given)
        for (std::size_t tensor = 0; tensor < group.size(); ++tensor, next += most)
          for (std::size_t k = 0; k < all_[i].norms; ++k) mine.push_back(norms[next + k]);
      all_[i].norms > 0 ? all_[i].flat->end_step(mine) : step_one(i, given);
    }
  }
  [[nodiscard]] std::optional<OptimizerState> state(std::size_t group,
                                                    const torch::Tensor& tensor) const override {
    const std::size_t i = index_of(spans_, group);
    return all_[i].flat->state(group - spans_[i].first, tensor);
  }
  void set_state(std::size_t group, const torch::Tensor& tensor,
                 const std::optional<OptimizerState>& state) override {
    const std::size_t i = index_of(spans_, group);
    all_[i].flat->set_state(group - spans_[i].first, tensor, state);
  }

 private:
  void step_one(std::size_t i, const ByGroup& given) const {
    if (has_tensors(given)) all_[i].flat->step(given);
  }

  std::vector<One> all_;
  std::vector<Span> spans_;
  std::vector<ByGroup> given_;  // between the halves of a step
};

class Several : public Optimizer {
 public:
  explicit Several(std::vector<std::unique_ptr<Optimizer>> all) : all_(std::move(all)) {
    if (all_.empty()) throw ConfigError("no optimiser: give one at least");
  }

  [[nodiscard]] std::string name() const override {
    std::string names;
    for (const auto& one : all_) names += (names.empty() ? "" : " and ") + one->name();
    return names;
  }
  // One that the program must step makes it step all.
  std::optional<std::string> choose_updates(Updates updates, Ownership ownership) override {
    std::optional<std::string> why;
    for (const auto& one : all_) {
      const std::optional<std::string> reason = one->choose_updates(updates, ownership);
      if (!why) why = reason;
    }
    return why;
  }
  [[nodiscard]] ByGroup parameter_groups() const override {
    ByGroup groups;
    for (const auto& one : all_)
      for (auto& group : one->parameter_groups()) groups.push_back(std::move(group));
    return groups;
  }
  [[nodiscard]] bool holds(const std::vector<std::vector<const c10::TensorImpl*>>& by_group) const override {
    const std::vector<Span> spans = spans_of();
    if (spans.back().first + spans.back().count != by_group.size()) return false;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const auto begin = by_group.begin() + static_cast<std::ptrdiff_t>(spans[i].first);
      if (!all_[i]->holds({begin, begin + static_cast<std::ptrdiff_t>(spans[i].count)})) return false;
    }
    return true;
  }
  [[nodiscard]] std::string options() const override {
    std::string text;
    for (const auto& one : all_) optim::append(text, one->options());
    return text;
  }
  void set_options(const std::string& options) override {
    std::string_view left = options;
    for (const auto& one : all_) one->set_options(optim::take_next(left));
  }
  [[nodiscard]] FlatVectors vectors(std::size_t group) const override {
    const std::vector<Span> spans = spans_of();
    const std::size_t i = index_of(spans, group);
    FlatVectors vectors = all_[i]->vectors(group - spans[i].first);
    vectors.joined = vectors.joined && norms() == 0;
    return vectors;
  }
  [[nodiscard]] std::size_t norms() const override {
    std::size_t most = 0;
    for (const auto& one : all_) most = std::max(most, one->norms());
    return most;
  }
  void step() override {
    for (const auto& one : all_) one->step();
  }
  [[nodiscard]] std::unique_ptr<FlatOptimizer> make_flat() const override {
    std::vector<SeveralFlat::One> flat;
    for (const auto& one : all_) flat.push_back({one->make_flat(), one->norms()});
    return std::make_unique<SeveralFlat>(std::move(flat), spans_of());
  }
  [[nodiscard]] std::optional<OptimizerState> state(const torch::Tensor& tensor) const override {
    for (const auto& one : all_)
      if (auto state = one->state(tensor)) return state;
    return std::nullopt;
  }
  void set_state(const torch::Tensor& tensor, const std::optional<OptimizerState>& state) override {
    for (const auto& one : all_)
      for (const auto& group : one->parameter_groups())
        for (const torch::Tensor& held : group)
          if (held.is_same(tensor)) one->set_state(tensor, state);
  }
  [[nodiscard]] std::vector<Options> group_options() const override {
    std::vector<Options> groups;
    for (const auto& one : all_)
      for (Options& group : one->group_options()) groups.push_back(std::move(group));
    return groups;
  }
  void set_group_options(const std::vector<Options>& options) override {
    auto next = options.begin();
    for (const auto& one : all_) {
      const auto count = static_cast<std::ptrdiff_t>(one->parameter_groups().size());
      if (options.end() - next < count) return;
      one->set_group_options({next, next + count});
      next += count;
    }
  }
  // The optimisers of one language have one encoding.
  [[nodiscard]] std::map<std::string, double> read_scalars(const std::string& scalars) const override {
    return all_.front()->read_scalars(scalars);
  }
  [[nodiscard]] std::string write_scalars(const std::map<std::string, double>& numbers) const override {
    return all_.front()->write_scalars(numbers);
  }
  void state_leaves() override {
    for (const auto& one : all_) one->state_leaves();
  }
  void state_returns() noexcept override {
    for (const auto& one : all_) one->state_returns();
  }
  [[nodiscard]] bool state_is_away() const override {
    return std::all_of(all_.begin(), all_.end(), [](const auto& one) { return one->state_is_away(); });
  }

 private:
  [[nodiscard]] std::vector<Span> spans_of() const {
    std::vector<Span> spans;
    std::size_t first = 0;
    for (const auto& one : all_) {
      spans.push_back({first, one->parameter_groups().size()});
      first += spans.back().count;
    }
    return spans;
  }

  std::vector<std::unique_ptr<Optimizer>> all_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(std::vector<std::unique_ptr<Optimizer>> optimizers) {
  if (optimizers.size() == 1) return std::move(optimizers.front());
  return std::make_unique<Several>(std::move(optimizers));
}

}  // namespace dear
