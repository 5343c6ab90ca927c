#include "dear/methods/rounds/rounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/comm/group/exchange.h"
#include "dear/methods/rounds/draws.h"

namespace dear::methods::rounds {

Rounds::Rounds(Group group, const Problem& problem, const Settings& settings, std::span<const double> start)
    : problem_(problem),
      settings_(settings),
      exchange_(std::move(group), problem.clients(), settings.seed),
      model_(start.begin(), start.end()) {
  const auto dimension = static_cast<std::size_t>(problem.dimension());
  if (model_.empty()) model_.resize(dimension);
  if (model_.size() != dimension)
    throw ConfigError(fmt::format("a start of {} coordinates does not fit a problem of {}: give as many",
                                  model_.size(), dimension));
  agree(exchange_.group(), "settings of rounds",
        fmt::format("{}, {} clients, dimension {}", describe(settings_), problem.clients(), dimension));
  gradient_.resize(dimension);
  const auto own = static_cast<std::size_t>(exchange_.own_clients().size());
  const auto vectors = static_cast<std::size_t>(settings_.algorithm->vectors());
  sent_.assign(own, std::vector<double>(vectors * dimension));
  if (settings_.algorithm->control != Control::none) control_.assign(own, std::vector<double>(dimension));
  if (settings_.algorithm->control == Control::directions) direction_.resize(dimension);
  if (settings_.algorithm->goal == Goal::saddle)
    stage_.emplace(settings_, model_, problem.primal(), exchange_.own_clients().size());
}

Mask Rounds::mask_of(const Round& round) const {
  const std::int64_t dimension = problem_.dimension() * settings_.algorithm->vectors();
  const int columns = static_cast<int>(round.senders.size());
  return settings_.algorithm->sent == Sent::masked ? Mask(dimension, columns, settings_.owners)
                                                   : Mask::whole(dimension, columns);
}

std::span<const double> Rounds::average(const Mask& mask, const Exchange::Vector& vector_of) {
  exchange_.reduce(round_, mask, vector_of);
  ++counts_.rounds;
  std::int64_t most = 0;
  for (const Sender& sender : round_.senders)
    most = std::max(most, mask.count(sender.column, {0, mask.dimension()}));
  counts_.up += most;
  counts_.down += mask.dimension();
  return exchange_.gather();
}

// Makes the gradient what the client descends along.
void Rounds::correct(int client, std::span<double> gradient) const {
  if (settings_.algorithm->control == Control::none) return;
  const std::vector<double>& own = control_[place(client)];
  if (settings_.algorithm->control == Control::shifts)
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] -= own[i];
  else
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += direction_[i] - own[i];
}

void Rounds::local_steps(int client) {
  const std::span<double> point(sent_[place(client)].data(), model_.size());
  std::copy(model_.begin(), model_.end(), point.begin());
  codec::Draw draw = draws_of(settings_.seed, Purpose::samples, round_.number, client);
  const Batch batch{.size = settings_.batch, .draw = &draw};
  for (std::int64_t step = 0; step < round_.steps; ++step) {
    problem_.gradient(client, point, batch, gradient_);
    correct(client, gradient_);
    if (stage_) {
      stage_->step(client - exchange_.own_clients().begin, gradient_, point);
    } else {
      for (std::size_t i = 0; i < point.size(); ++i) point[i] -= settings_.gamma * gradient_[i];
    }
  }
  if (settings_.algorithm->control == Control::directions) propose_direction(client);
}

// Scaffold's second way to renew a direction: the mean of what the client's steps went along, without its
// correction. Its change travels.
void Rounds::propose_direction(int client) {
  std::vector<double>& sent = sent_[place(client)];
  const double gamma = stage_ ? stage_->gamma() : settings_.gamma;
  const double way = gamma * static_cast<double>(round_.steps);
  for (std::size_t i = 0; i < model_.size(); ++i)
    sent[model_.size() + i] = (model_[i] - sent[i]) / way - direction_[i];
}

void Rounds::learn(const Mask& mask, std::span<const double> mean) {
  const std::size_t dimension = model_.size();
  const Range own = exchange_.own_clients();
  for (const Sender& sender : round_.senders) {
    if (control_.empty() || !own.contains(sender.client)) continue;
    std::vector<double>& control = control_[place(sender.client)];
    const std::vector<double>& sent = sent_[place(sender.client)];
    if (settings_.algorithm->control == Control::shifts) {
      const double rate = settings_.probability * settings_.chi / settings_.gamma;
      mask.each(sender.column, {0, mask.dimension()}, [&](std::int64_t coordinate) {
        const auto i = static_cast<std::size_t>(coordinate);
        control[i] += rate * (mean[i] - sent[i]);
      });
    } else {
      for (std::size_t i = 0; i < dimension; ++i) control[i] += sent[dimension + i];
    }
  }
  if (settings_.algorithm->control == Control::directions) {
    const double part = static_cast<double>(round_.senders.size()) / problem_.clients();
    for (std::size_t i = 0; i < dimension; ++i) direction_[i] += part * mean[dimension + i];
  }
}

bool Rounds::next() {
  if (ended_) return false;
  round_ = draw_round(settings_, problem_.clients(), number_++);
  if (round_.senders.empty()) {
    ++counts_.given_up;
    return true;
  }
  if (stage_) {
    if (stage_->steps_left() == 0) return end_stage();
    round_.steps = std::min(round_.steps, stage_->steps_left());
    stage_->made(round_.steps);
  }
  counts_.steps += round_.steps;
  const Range own = exchange_.own_clients();
  for (const Sender& sender : round_.senders)
    if (own.contains(sender.client)) local_steps(sender.client);
  const Mask mask = mask_of(round_);
  const std::span<const double> mean =
      average(mask, [&](int client) { return std::span<const double>(sent_[place(client)]); });
  learn(mask, mean);
  std::copy_n(mean.begin(), model_.size(), model_.begin());
  return true;
}

bool Rounds::end_stage() {
  const int senders = static_cast<int>(round_.senders.size());
  round_.steps = 0;
  const std::int64_t first = exchange_.own_clients().begin;
  const bool more = stage_->end(average(Mask::whole(problem_.primal() + 1, senders),
                                        [&](int client) { return stage_->sums_of(client - first); }));
  std::copy_n(stage_->proximal_point().begin(), problem_.primal(), model_.begin());
  std::vector<double> sums(static_cast<std::size_t>(problem_.dual_sums()));
  const std::span<const double> means = average(Mask::whole(problem_.dual_sums(), senders), [&](int client) {
    std::fill(sums.begin(), sums.end(), 0.0);
    codec::Draw draw = draws_of(settings_.seed, Purpose::stage, round_.number, client);
    // As many samples as those of a round.
    problem_.add_dual_sums(
        client, model_, {.size = settings_.batch * static_cast<int>(settings_.every), .draw = &draw}, sums);
    return std::span<const double>(sums);
  });
  problem_.set_dual(means, model_);
  ended_ = !more;
  return true;
}

std::vector<double> Rounds::control_of(int client) const {
  std::vector<double> control(model_.size());
  correct(client, control);
  for (double& value : control) value = -value;
  return control;
}

double Rounds::control_sum() {
  Round all{.number = -1, .senders = {}, .steps = 0};
  for (int client = 0; client < problem_.clients(); ++client) all.senders.push_back({client, client});
  std::vector<double> control;
  exchange_.reduce(all, Mask::whole(problem_.dimension(), problem_.clients()), [&](int client) {
    control = control_of(client);
    return std::span<const double>(control);
  });
  double largest = 0;
  for (const double mean : exchange_.gather())
    largest = std::max(largest, std::abs(mean) * problem_.clients());
  return largest;
}

}  // namespace dear::methods::rounds
