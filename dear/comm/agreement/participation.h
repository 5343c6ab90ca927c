#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/comm/agreement/announcements.h"
#include "dear/comm/agreement/join_options.h"

namespace dear::agreement {

// Announcements for the time of one Join.
struct Joined {
  std::shared_ptr<Announcements> call;
  JoinOptions options;
  std::int64_t steps = 0;     // that this rank took itself
  std::int64_t followed = 0;  // that it took part in without data
  bool over = false;
};

// [Note: participation] Ranks that run out of data have to take part in the collectives of the others, and
// know nothing of what those do next. So in a join every rank announces each of its calls, first of all the
// beginning of a backward pass; a rank without data hears the announcements and makes the same calls. It
// reports its layers at `backward_pass`, with every gradient marked as unused ([Note: unused parameters]), so
// that the overlap of the others stays; options of the optimiser come from the first rank with data, since
// each rank updates shards of its own. Who has data announces without waiting; it waits, at step(), for what
// was said at the beginning of the backward pass.
//
// The samples of a step are announced along with its beginning. Before a gradient is sent it is multiplied by
// n P / N, for n of N samples on this of P ranks, so that the average over ranks is the mean over samples.
// Where all have equally many the factor is exactly 1.
//
// Participation holds the calls that one DataParallel announces, and the weight of this rank in its steps.
// For the program's thread.
class Participation {
 public:
  explicit Participation(int ranks = 1) : ranks_(ranks) {}

  // The announcements of this DataParallel, once it was needed.
  [[nodiscard]] const std::shared_ptr<Announcements>& call() const { return call_; }
  void set_call(std::shared_ptr<Announcements> call) { call_ = std::move(call); }
  // Announces the beginnings of all steps from now on, for samples().
  void announce_every_step() { announces_every_step_ = true; }
  [[nodiscard]] bool announces_every_step() const { return announces_every_step_; }
  // Announces all acts, as model `number` of the join.
  void join(std::shared_ptr<Joined> joined, std::uint32_t number);
  void leave();
  [[nodiscard]] bool joined() const { return joined_ && !joined_->over; }
  [[nodiscard]] Joined& in_join() { return *joined_; }

  // While true, this rank has run out of data: it announces nothing for this model, and follows the others.
  void set_out_of_data(bool out) { out_of_data_ = out; }
  [[nodiscard]] bool out_of_data() const { return out_of_data_; }

  // Sets the samples of the next step.
  void set_samples(std::int64_t samples) { samples_ = samples; }
  [[nodiscard]] std::int64_t samples() const { return samples_; }
  // Sets what this rank says of its speed, in samples a second, as its next steps begin.
  void set_rate(double rate) { rate_ = rate; }
  // By rank, the speed that each said in this step, in samples a second; empty until factor() has heard them.
  [[nodiscard]] const std::vector<double>& rates() const { return rates_; }
  // Whether a step's beginning is to be announced, and is not yet.
  [[nodiscard]] bool begins() const {
    return (joined() || announces_every_step_) && !out_of_data_ && !begun_;
  }
  [[nodiscard]] bool begun() const { return begun_.has_value(); }
  void begin();
  // Announces an act of a join, the beginning of its step first; no-op outside of a join, or without data.
  // `text` is asked for what goes with it: the optimiser's options where ranks have run out, or the fusion.
  void announce(Announcement what, const std::function<std::string()>& text = {});
  // The step has ended: what was said of it is forgotten.
  void end_step();

  // Where uneven inputs are an error: says that ranks have run out, and which; waits for the announcement of
  // the step's beginning, or of the act that was announced last.
  [[nodiscard]] std::optional<std::string> missing();
  // By what gradients are multiplied before they are sent. Waits for the step's beginning where it matters.
  // MismatchError where some ranks say how many samples they have, and others do not.
  [[nodiscard]] double factor();
  // Returns true once a step for each parameter.
  [[nodiscard]] bool first_time(std::size_t parameter);

  // The first rank that has data, as far as was heard; 0 outside of a join.
  [[nodiscard]] int first() const { return first_; }
  void set_first(int rank) { first_ = rank; }

 private:
  [[nodiscard]] Announcements& announcements() { return joined() ? *joined_->call : *call_; }

  int ranks_;
  std::shared_ptr<Announcements> call_;
  std::shared_ptr<Joined> joined_;
  std::uint32_t number_ = 0;
  bool announces_every_step_ = false, out_of_data_ = false;
  std::int64_t samples_ = kUnsaid;
  double rate_ = 0;
  std::vector<double> rates_;
  std::optional<Announcements::Number> begun_, last_;
  std::optional<double> factor_;
  std::vector<bool> seen_;
  int first_ = 0;
};

// The first rank that does something; none where all have run out.
[[nodiscard]] std::optional<int> first_present(const std::vector<Announcement>& said);
// MismatchError where ranks do different things; those that have run out do what the others do.
void require_alike(int rank, const std::vector<Announcement>& said);

}  // namespace dear::agreement
