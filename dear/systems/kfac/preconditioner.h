#pragma once

#include <array>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/comm/group/group.h"
#include "dear/systems/kfac/curvature.h"
#include "dear/systems/kfac/kfac.h"
#include "dear/systems/kfac/layers.h"
#include "dear/systems/kfac/times.h"
#include "dear/systems/kfac/uses.h"
#include "dear/train/data_parallel/part_of_training.h"

namespace dear::systems::kfac {

// [Note: the first step of K-FAC] Until the first step() sums are only kept. Then the order in which layers
// were first used, rank 0's on all ranks, becomes their order; the number of uses of a layer becomes the
// number after which a sum is complete, on each rank its own, for that says only when a sum is reported and
// not what travels; and rank 0's times make the plan. Sums that step() finds incomplete are reported there,
// in their order, so every rank issues the same collectives. A use that comes when its sum was reported
// already counts no more in this step; later steps wait for as many. Where a step of the DataParallel was
// given up since the last step(), sums may hold samples of both passes, on some strategies more than on
// others: they travel, and are dropped on arrival.
// The work of a Kfac on one rank; see there.
class Preconditioner : public UseListener {
 public:
  Preconditioner(const std::vector<KfacLayer>& layers, DataParallel& dp, KfacOptions options);
  ~Preconditioner() override;
  void listen(const std::shared_ptr<Preconditioner>& self);  // once, after construction

  void step(const KfacStep& step);
  [[nodiscard]] std::map<std::string, torch::Tensor> state();
  void load_state(const std::map<std::string, torch::Tensor>& state);
  [[nodiscard]] std::map<std::string, torch::Tensor> checked(
      const std::map<std::string, torch::Tensor>& state) const;
  [[nodiscard]] KfacReport report() const;

  bool input_seen(std::size_t layer, const std::optional<Patches>& patches,
                  const torch::Tensor& input) override;
  void gradient_seen(std::size_t layer, const torch::Tensor& gradient) override;
  void keep(std::exception_ptr error) noexcept override;

 private:
  struct Sums {
    Sum sum;
    std::int64_t expected = 0;  // uses of a step, once known
  };
  void or_fail(const std::function<void()>& act);
  [[nodiscard]] FactorId factor_of(std::size_t layer, Side side) const;
  [[nodiscard]] Sums& sums_of(std::size_t layer, Side side) {
    return sums_[layer][side == Side::input ? 0 : 1];
  }
  void add(std::size_t layer, Side side, const Rows& rows, double begin_seconds);
  [[nodiscard]] std::vector<double> learning_rates(const KfacStep& step) const;
  void learn_order();
  void make_plan(const Curvature* measured);
  void take_step(const KfacStep& step, const std::vector<double>& rates);
  void report_rest();
  void clear_sums(bool whole);
  void precondition(const std::vector<double>& rates);
  [[nodiscard]] bool plans_anew() const;
  void observe();
  void follow_interval();
  [[nodiscard]] std::vector<Span> spans() const;
  [[nodiscard]] std::vector<Span> spans_of(const Curvature& curvature) const;
  void take_loaded();
  [[nodiscard]] std::string plan_text() const;

  const KfacOptions options_;
  train::PartOfTraining training_;
  Choice choice_;  // layers in the order of their use, once known
  at::ScalarType type_ = at::kFloat;
  std::optional<Group> group_;  // of its own
  const int unwinding_ = std::uncaught_exceptions();

  std::weak_ptr<Preconditioner> self_;
  std::vector<std::array<Sums, 2>> sums_;
  PassTimes times_;
  std::vector<FactorState> states_;              // by factor; empty before the first step
  std::map<std::string, torch::Tensor> loaded_;  // until the first step
  std::int64_t steps_ = 0;
  std::int64_t given_up_ = 0;    // steps of the DataParallel, when step() was called last
  std::int64_t planned_at_ = 0;  // steps, when the plan in force was made
  int plans_ = 0;
  FactorCounts counts_;
  double earlier_waited_ = 0;
  std::vector<Span> earlier_spans_;
  std::exception_ptr failure_;            // thrown by every call
  std::exception_ptr kept_;               // of an operator, until step() can throw it
  std::unique_ptr<Curvature> curvature_;  // null before the first step
  std::unique_ptr<UseObserver> observer_;
};

}  // namespace dear::systems::kfac
