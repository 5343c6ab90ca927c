#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/trace/trace.h"
#include "dear/systems/rounds/exchange.h"
#include "dear/systems/rounds/rounds.h"

// A replica as one rank of it sees it.
namespace dear {

class Rounds::Replica {
 public:
  Replica(const Model& model, const Group& group, RoundOptions options, const MakeOuter& outer);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  [[nodiscard]] const Group& inside() const { return *inside_; }
  void follow(DataParallel& dp);
  void stepped();  // the replica made a step
  void end();
  void show_global();
  void show_own();
  [[nodiscard]] std::map<std::string, torch::Tensor> state();
  void load_state(const std::map<std::string, torch::Tensor>& state);
  [[nodiscard]] RoundsReport report() const;
  [[nodiscard]] std::vector<Span> spans() const;  // of exchanges, where the training records a trace
  [[nodiscard]] const systems::rounds::Exchange& exchange() const { return *exchange_; }

 private:
  struct Trained {
    std::string name;
    torch::Tensor own, global;
  };
  // An exchange between a fragment's turn and the step at which its mean counts.
  struct UnderWay {
    std::size_t fragment = 0;
    std::int64_t due = 0;  // the position
  };
  enum class Applied : std::uint8_t { nothing, mean, no_replica };

  void scan(const Model& model);
  void agree_on(const Group& group) const;
  void begin_alike(const Group& group, const Model& model);
  void make_outers(const MakeOuter& outer);
  Applied advance();
  void require_frozen() const;
  void start(std::size_t fragment);
  Applied apply();
  void require_finite(std::size_t fragment) const;
  void take_global(torch::Tensor& own, const torch::Tensor& global) const;
  void await_parameters();
  void require_own(const char* call) const;
  [[nodiscard]] std::vector<std::int64_t> settings() const;  // by which a state is known
  [[nodiscard]] bool keeps_residuals() const;
  void add_memory(std::map<std::string, torch::Tensor>& state);
  void load_memory(const std::map<std::string, torch::Tensor>& state);
  void require_state(const std::map<std::string, torch::Tensor>& state) const;

  const int unwinding_ = std::uncaught_exceptions();
  RoundOptions options_;
  Group all_;
  std::optional<Group> inside_, between_, gathers_;
  at::ScalarType type_ = at::kFloat;
  std::vector<Trained> trained_, frozen_;
  std::vector<systems::rounds::Fragment> fragments_;
  std::vector<std::unique_ptr<OuterOptimizer>> outers_;  // by fragment; none: the mean is taken
  std::unique_ptr<systems::rounds::Exchange> exchange_;
  DataParallel* training_ = nullptr;

  std::int64_t position_ = 0;                // in the rounds: steps, and those that end() skipped
  std::int64_t steps_ = 0;                   // of this replica
  std::vector<std::int64_t> steps_at_turn_;  // by fragment, at its last turn
  std::optional<UnderWay> under_way_;
  std::int64_t exchanges_ = 0;
  std::vector<torch::Tensor> shown_;  // the replica's own, while global ones are in their place
};

}  // namespace dear
