#include "dear/comm/agreement/participation.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::agreement {
std::optional<int> first_present(const std::vector<Announcement>& said) {
  const auto found = std::find_if(said.begin(), said.end(),
                                  [](const Announcement& one) { return one.call != Call::nothing; });
  if (found == said.end()) return std::nullopt;
  return static_cast<int>(found - said.begin());
}

void require_alike(int rank, const std::vector<Announcement>& said) {
  const std::optional<int> first = first_present(said);
  if (!first) return;
  Announcement expected = said[static_cast<std::size_t>(*first)];
  expected.samples = kUnsaid;
  expected.rate = 0;
  for (std::size_t other = 0; other < said.size(); ++other) {
    Announcement found = said[other];
    found.samples = kUnsaid;
    found.rate = 0;
    if (found.call == Call::nothing || found == expected) continue;
    throw MismatchError(fmt::format(
        "rank {}: in a join rank {} comes to {} of model {}, rank {} to {} of model {}: ranks that have data "
        "make the same calls in the same order, with the same arguments",
        rank, other, text_of(found.call), found.model, *first, text_of(expected.call), expected.model));
  }
}

void Participation::join(std::shared_ptr<Joined> joined, std::uint32_t number) {
  end_step();
  joined_ = std::move(joined);
  number_ = number;
  first_ = 0;
}

void Participation::leave() {
  end_step();
  joined_.reset();
  out_of_data_ = false;
  first_ = 0;
}

void Participation::begin() {
  factor_.reset();
  begun_ = announcements().send(
      {.call = Call::backward_pass, .model = number_, .samples = samples_, .rate = rate_});
  announcements().keep(*begun_);
  last_ = begun_;
}

void Participation::end_step() {
  if (begun_ && (joined_ || call_)) (joined_ ? *joined_->call : *call_).forget(*begun_);
  begun_.reset();
  last_.reset();
  factor_.reset();
  rates_.clear();
  samples_ = kUnsaid;
  seen_.clear();
}

void Participation::announce(Announcement what, const std::function<std::string()>& text) {
  if (!joined() || out_of_data_) return;
  const bool waits = outside_of_steps(what.call);
  if (!waits && !begun_) begin();
  what.model = number_;
  last_ = announcements().send(what);
  if (!waits && what.call != Call::step) return;
  const std::vector<Announcement> said = announcements().receive(waits ? *last_ : *begun_);
  require_alike(announcements().rank(), said);
  first_ = first_present(said).value_or(0);
  const bool all_here = std::none_of(said.begin(), said.end(),
                                     [](const Announcement& one) { return one.call == Call::nothing; });
  if (what.call == Call::step) ++joined_->steps;
  if (what.call == Call::regroup || (what.call == Call::step && !all_here))
    announcements().pass_on(first_, text());
}

std::optional<std::string> Participation::missing() {
  if (!joined() || out_of_data_ || joined_->options.uneven != Uneven::error || !last_) return std::nullopt;
  const std::vector<Announcement> said = announcements().receive(*last_);
  const auto found = std::find_if(said.begin(), said.end(),
                                  [](const Announcement& one) { return one.call == Call::nothing; });
  if (found == said.end()) return std::nullopt;
  return fmt::format(
      "rank {}: rank {} has no more data after {} steps of this join, and this rank has: the step is given "
      "up "
      "on every rank; give ranks equally many batches, or leave out the error",
      announcements().rank(), found - said.begin(), joined_->steps);
}

double Participation::factor() {
  if (factor_) return *factor_;
  factor_ = 1;
  if (ranks_ == 1) {
    if (samples_ == 0) factor_ = 0;
    return *factor_;
  }
  if (out_of_data_ || !begun_) return *factor_;
  const bool waits = samples_ != kUnsaid || !joined() || joined_->options.divisor == Divisor::ranks_with_data;
  if (!waits) return *factor_;
  const std::vector<Announcement> said = announcements().receive(*begun_);
  require_alike(announcements().rank(), said);
  double all = 0;
  int present = 0;
  rates_.assign(said.size(), 0);
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    if (said[rank].call == Call::nothing) continue;
    rates_[rank] = said[rank].rate;
    ++present;
    if ((said[rank].samples == kUnsaid) != (samples_ == kUnsaid))
      throw MismatchError(
          fmt::format("rank {}: rank {} {} how many samples this step has, and this rank {}: call samples() "
                      "on every rank, or on none",
                      announcements().rank(), rank, samples_ == kUnsaid ? "says" : "does not say",
                      samples_ == kUnsaid ? "does not" : "does"));
    all += static_cast<double>(said[rank].samples);
  }
  if (samples_ != kUnsaid) {
    factor_ = samples_ == 0 ? 0 : static_cast<double>(samples_) * ranks_ / all;
  } else if (joined() && joined_->options.divisor == Divisor::ranks_with_data) {
    factor_ = static_cast<double>(ranks_) / present;
  }
  return *factor_;
}

bool Participation::first_time(std::size_t parameter) {
  if (seen_.size() <= parameter) seen_.resize(parameter + 1);
  const bool seen = seen_[parameter];
  seen_[parameter] = true;
  return !seen;
}

}  // namespace dear::agreement
