#include "dear/methods/edge/edge_run.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/methods/edge/aggregators.h"
#include "dear/methods/edge/device_choice.h"
#include "dear/methods/edge/draws.h"
#include "dear/methods/edge/fleet.h"
#include "dear/methods/edge/gossip.h"
#include "dear/methods/edge/ofdma.h"
#include "dear/methods/edge/projected_sums.h"
#include "dear/methods/edge/schedulers.h"
#include "dear/methods/rounds/mask.h"
#include "dear/methods/rounds/vectors.h"

namespace dear::methods::edge {
namespace {

using Vectors = std::vector<std::vector<double>>;

constexpr double kRealBits = 32;

std::vector<int> first_devices(int count) {
  std::vector<int> all(index_of(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<double> equal_weights(std::size_t count) {
  return std::vector<double>(count, 1 / static_cast<double>(count));
}

class Run {
 public:
  Run(const EdgeSettings& settings, const Classification& task)
      : settings_(settings),
        task_(task),
        aggregator_(find_aggregator(settings.aggregator)),
        quantiser_(find_quantiser(aggregator_.quantiser, settings.quantiser)),
        fleet_(settings, task, aggregator_.way == Way::hierarchical ? settings.cells : 1),
        model_(task.start()),
        bits_(quantiser_.bits(task.dimension(), settings.quantiser)),
        whole_bits_(kRealBits * static_cast<double>(task.dimension())),
        choice_(settings, fleet_, bits_, whole_bits_),
        ages_(index_of(fleet_.size())),
        memories_(index_of(fleet_.size())) {
    if (settings.aggregator == "a-dsgd")
      projection_.emplace(task.dimension(), settings.symbol_share, settings.seed);
    if (settings.aggregator == "diloco") velocity_.resize(model_.size());
    if (aggregator_.way == Way::shifted)
      shifts_.assign(index_of(fleet_.size()), std::vector<double>(model_.size()));
    if (aggregator_.way != Way::gossip) return;
    models_.assign(index_of(fleet_.size()), model_);
    weights_ = metropolis(make_graph(settings.graph, fleet_.size(), settings.density, settings.seed));
    if (settings.aggregator == "choco")
      choco_ = std::make_unique<Choco>(weights_, settings.consensus, quantiser_, settings.quantiser);
  }

  void next() {
    state_.participants.clear();
    switch (aggregator_.way) {
      case Way::digital:
        digital();
        break;
      case Way::shifted:
        shifted();
        break;
      case Way::analogue:
        analogue();
        break;
      case Way::hierarchical:
        hierarchical();
        break;
      case Way::gossip:
        gossip();
        break;
    }
    grow_ages(ages_, state_.participants);
    ++state_.number;
  }

  const EdgeRound& measured() {
    state_.mean_age = std::accumulate(ages_.begin(), ages_.end(), 0.0) / static_cast<double>(ages_.size());
    state_.loss = task_.loss(model_);
    state_.accuracy = task_.accuracy(model_);
    if (!std::isfinite(state_.loss))
      throw Error(
          fmt::format("the loss is {} after round {}: take a smaller step size", state_.loss, state_.number));
    return state_;
  }

 private:
  // What a device's local steps add to a model.
  [[nodiscard]] std::vector<double> update(int device, std::int64_t round,
                                           const std::vector<double>& from) const {
    std::vector<double> point = from, gradient(from.size());
    codec::Draw draw = draws_of(settings_.seed, Purpose::samples, round, device);
    for (int step = 0; step < settings_.local_steps; ++step) {
      task_.gradient(device, point, settings_.batch, draw, gradient);
      rounds::add_scaled(-settings_.step_size, gradient, point);
      if (!shifts_.empty()) rounds::add_scaled(settings_.step_size, shifts_[index_of(device)], point);
    }
    for (std::size_t i = 0; i < point.size(); ++i) point[i] -= from[i];
    return point;
  }

  // Computing begins when the model has arrived.
  [[nodiscard]] Upload upload_of(int device, double bits, double begin) const {
    return {.bits = bits,
            .ready_seconds = begin + fleet_.compute_seconds(state_.number, device),
            .channel_hz = fleet_.channel_hz(state_.number, device)};
  }
  [[nodiscard]] std::vector<Upload> uploads_of(const std::vector<int>& devices, double bits,
                                               double begin) const {
    std::vector<Upload> uploads;
    for (const int device : devices) uploads.push_back(upload_of(device, bits, begin));
    return uploads;
  }
  [[nodiscard]] Round allocate(const std::vector<Upload>& uploads, double bandwidth_hz) const {
    return find_named(allocators(), settings_.allocator, "allocator").allocate(uploads, bandwidth_hz);
  }
  void spend(int device, double sending_seconds) {
    state_.joules +=
        fleet_.compute_joules(device) + sending_joules(settings_.cell.power_watts, sending_seconds);
  }

  // Who takes part, and when their computing may begin.
  std::vector<int> choose(double& begin) {
    const auto update_now = [this](int device) { return update(device, state_.number, model_); };
    DeviceChoice::Chosen chosen = choice_.choose(state_.number, ages_, update_now);
    for (const int device : chosen.in_vain) spend(device, 0);
    waited_ = chosen.waited_seconds;
    begin = chosen.begin_seconds;
    return std::move(chosen.devices);
  }

  std::vector<Upload> ready(const std::vector<int>& chosen, double bits, double begin) {
    std::vector<Upload> uploads = uploads_of(chosen, bits, begin);
    for (Upload& one : uploads) one.ready_seconds = std::max(one.ready_seconds, waited_);
    waited_ = 0;
    return uploads;
  }

  void digital() {
    double begin = 0;
    const std::vector<int> chosen = choose(begin);
    const std::vector<Upload> uploads = ready(chosen, bits_, begin);
    const Round round = allocate(uploads, settings_.cell.bandwidth_hz);
    const double deadline = settings_.deadline_seconds > 0 ? settings_.deadline_seconds : INFINITY;
    Vectors arrived;
    for (std::size_t place = 0; place < chosen.size(); ++place) {
      const int device = chosen[place];
      spend(device,
            std::max(0.0, std::min(round.end_seconds[place], deadline) - uploads[place].ready_seconds));
      if (round.end_seconds[place] > deadline) continue;
      std::vector<double> wanted = update(device, state_.number, model_);
      ErrorMemory& memory = memories_[index_of(device)];
      const bool remembers = !quantiser_.unbiased && !quantiser_.votes;
      if (remembers) memory.add_to(wanted);
      std::vector<double>& sent = arrived.emplace_back(wanted.size());
      codec::Draw draw = draws_of(settings_.seed, Purpose::quantiser, state_.number, device);
      quantise(quantiser_, wanted, settings_.quantiser, draw, sent);
      if (remembers) memory.keep(wanted, sent);
      state_.participants.push_back(device);
      state_.bits_up += bits_;
    }
    state_.seconds += std::min(round.seconds, deadline);
    if (arrived.empty()) return;  // all were late: the model stays
    const std::vector<double> mean =
        quantiser_.votes ? majority(arrived) : weighted_mean(arrived, equal_weights(arrived.size()));
    velocity_.empty() ? rounds::add_scaled(1, mean, model_) : step_with_momentum(mean);
  }

  // Nesterov's momentum, as torch.optim.SGD has it, of the server's steps along mean updates.
  void step_with_momentum(const std::vector<double>& mean) {
    for (std::size_t i = 0; i < model_.size(); ++i) {
      velocity_[i] = settings_.outer_momentum * velocity_[i] + mean[i];
      model_[i] += settings_.outer_step_size * (mean[i] + settings_.outer_momentum * velocity_[i]);
    }
  }

  // A round of TAMUNA with a fixed number of local steps, whose inverse is its probability p.
  void shifted() {
    double begin = 0;
    const std::vector<int> chosen = choose(begin);
    const int cohort = static_cast<int>(chosen.size());
    const int owners = settings_.owners == 0 ? cohort : std::min(settings_.owners, cohort);
    const Range whole{.begin = 0, .end = task_.dimension()};
    const rounds::Mask mask(whole.end, cohort, owners);
    std::vector<int> columns = first_devices(cohort);  // dealt to devices
    codec::Draw draw = draws_of(settings_.seed, Purpose::quantiser, state_.number);
    for (std::size_t i = columns.size(); i > 1; --i) std::swap(columns[i - 1], columns[draw.below(i)]);
    std::vector<Upload> uploads;
    for (std::size_t place = 0; place < chosen.size(); ++place)
      uploads.push_back(upload_of(chosen[place],
                                  kRealBits * static_cast<double>(mask.count(columns[place], whole)), begin));
    for (Upload& one : uploads) one.ready_seconds = std::max(one.ready_seconds, waited_);
    waited_ = 0;
    const Round round = allocate(uploads, settings_.cell.bandwidth_hz);
    Vectors updates;
    std::vector<double> mean(model_.size());
    for (std::size_t place = 0; place < chosen.size(); ++place) {
      updates.push_back(update(chosen[place], state_.number, model_));
      mask.each(columns[place], whole, [&](std::int64_t at) {
        mean[static_cast<std::size_t>(at)] += updates.back()[static_cast<std::size_t>(at)] / owners;
      });
      spend(chosen[place], round.end_seconds[place] - uploads[place].ready_seconds);
      state_.bits_up += uploads[place].bits;
    }
    const double devices = fleet_.size(), chance = 1.0 / settings_.local_steps;
    const double learned =
        owners == 1 ? 0 : chance * devices * (owners - 1) / (owners * (devices - 1)) / settings_.step_size;
    for (std::size_t place = 0; place < chosen.size(); ++place)
      mask.each(columns[place], whole, [&](std::int64_t coordinate) {
        const auto at = static_cast<std::size_t>(coordinate);
        shifts_[index_of(chosen[place])][at] += learned * (mean[at] - updates[place][at]);
      });
    rounds::add_scaled(1, mean, model_);
    state_.participants = chosen;
    state_.seconds += round.seconds;
  }

  // The largest elements of an update and of what earlier ones left out; a device that does not send keeps
  // all.
  std::vector<double> largest_of(int device, std::vector<double> wanted, bool sends) {
    ErrorMemory& memory = memories_[index_of(device)];
    memory.add_to(wanted);
    std::vector<double> sent(wanted.size());
    codec::Draw draw = draws_of(settings_.seed, Purpose::quantiser, state_.number, device);
    if (sends) quantise(quantiser_, wanted, settings_.quantiser, draw, sent);
    memory.keep(wanted, sent);
    return sent;
  }

  void analogue() {
    double begin = 0;
    const std::vector<int> chosen = choose(begin);
    // Devices agree on a scale first, but for projections, whose amplitudes travel with them.
    const double agreed_bits = projection_ ? 0 : kScaleBits;
    const std::vector<Upload> uploads = ready(chosen, agreed_bits, begin);
    const Round agreed = allocate(uploads, settings_.cell.bandwidth_hz);
    Vectors updates;
    std::vector<double> fading;
    const double uses = analogue_uses(projection_ ? projection_->symbols() + 1 : task_.dimension());
    const double sending = uses / settings_.cell.bandwidth_hz;
    for (const int device : chosen) {
      updates.push_back(update(device, state_.number, model_));
      fading.push_back(fleet_.fading(state_.number, device));
      const bool sends = fading.back() >= settings_.air.threshold;
      if (sends) state_.participants.push_back(device);
      spend(device, sends ? sending : 0);
      state_.bits_up += agreed_bits;
      if (projection_) updates.back() = largest_of(device, updates.back(), sends);
    }
    if (scale_ == 0 || settings_.aggregator != "over-the-air-fixed") scale_ = largest_scale(updates);
    codec::Draw noise = draws_of(settings_.seed, Purpose::noise, state_.number);
    std::vector<double> mean(model_.size());
    projection_ ? sum_projected(settings_.air, *projection_, updates, fading, noise, mean)
                : sum_over_the_air(settings_.air, updates, fading, scale_, noise, mean);
    rounds::add_scaled(1, mean, model_);
    state_.channel_uses += uses;
    state_.seconds += agreed.seconds + sending;
  }

  void hierarchical() {
    const double band = settings_.cell.bandwidth_hz / settings_.cells;  // no two cells share a band
    const std::int64_t global = state_.number;
    Vectors models;
    std::vector<double> shares;
    double slowest = 0;
    for (int cell = 0; cell < settings_.cells; ++cell) {
      std::vector<int> members;
      for (int device = cell; device < fleet_.size(); device += settings_.cells) members.push_back(device);
      std::vector<double> model = model_;
      double seconds = 0;
      for (int intra = 0; intra < settings_.intra_rounds; ++intra) {
        state_.number = global * settings_.intra_rounds + intra;
        // The broadcast has the cell's part of the band.
        const double begin = settings_.cells * fleet_.broadcast_seconds(whole_bits_, state_.number, members);
        const std::vector<Upload> uploads = uploads_of(members, bits_, begin);
        const Round round = allocate(uploads, band);
        seconds += round.seconds;
        Vectors updates;
        for (std::size_t place = 0; place < members.size(); ++place) {
          updates.push_back(update(members[place], state_.number, model));
          spend(members[place], round.end_seconds[place] - uploads[place].ready_seconds);
          state_.bits_up += bits_;
        }
        rounds::add_scaled(1, weighted_mean(updates, equal_weights(updates.size())), model);
      }
      slowest = std::max(slowest, seconds);
      models.push_back(std::move(model));
      shares.push_back(static_cast<double>(members.size()) / fleet_.size());
    }
    state_.number = global;
    model_ = weighted_mean(models, shares);
    state_.participants = first_devices(fleet_.size());
    state_.seconds += slowest + 2 * whole_bits_ / settings_.backhaul_bits_per_second;
  }

  void gossip() {
    const std::vector<int> all = first_devices(fleet_.size());
    const std::vector<Upload> uploads = uploads_of(all, bits_, 0);
    const Round round = allocate(uploads, settings_.cell.bandwidth_hz);
    for (const int device : all) {
      rounds::add_scaled(1, update(device, state_.number, models_[index_of(device)]),
                         models_[index_of(device)]);
      spend(device, round.end_seconds[index_of(device)] - uploads[index_of(device)].ready_seconds);
      state_.bits_up += bits_;
    }
    if (choco_)
      choco_->mix(models_, settings_.seed, state_.number);
    else
      mix(weights_, models_);
    model_ = weighted_mean(models_, equal_weights(models_.size()));
    state_.participants = all;
    state_.seconds += round.seconds;
  }

  const EdgeSettings& settings_;
  const Classification& task_;
  const Aggregator& aggregator_;
  const Quantiser& quantiser_;
  Fleet fleet_;
  std::vector<double> model_;
  double bits_, whole_bits_;
  DeviceChoice choice_;
  std::vector<std::int64_t> ages_;
  std::vector<ErrorMemory> memories_;
  Vectors shifts_;  // of tamuna
  Vectors models_;  // of gossip
  Weights weights_;
  std::unique_ptr<Choco> choco_;
  std::optional<Projection> projection_;  // of a-dsgd
  std::vector<double> velocity_;          // of diloco
  double scale_ = 0, waited_ = 0;
  EdgeRound state_;
};

}  // namespace

std::vector<EdgeRound> run_edge(const EdgeSettings& settings, const Classification& task,
                                const std::function<void(const EdgeRound&)>& on_round) {
  check(settings, task);
  Run run(settings, task);
  std::vector<EdgeRound> rounds{run.measured()};
  while (rounds.back().number < settings.rounds &&
         (settings.seconds == 0 || rounds.back().seconds < settings.seconds)) {
    run.next();
    rounds.push_back(run.measured());
    if (on_round) on_round(rounds.back());
  }
  return rounds;
}

}  // namespace dear::methods::edge
