#include "studies/rounds/replicas.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/codec/draw.h"

namespace dear::studies::rounds {
namespace {

constexpr std::uint64_t kBatches = 1000;  // keys of codec::Draw from here on, one for each site

void round_to_bf16(float& value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  bits += 0x7fffU + ((bits >> 16) & 1U);
  value = std::bit_cast<float>(bits & 0xffff0000U);
}

// The nearest of 0 and +-1, 1/2, 1/4, ... 1/64.
float nearest_power(float part) {
  constexpr float kLeast = 0x1p-6F;
  const float magnitude = std::abs(part);
  if (magnitude < kLeast / 2) return 0;
  float power = 1;
  while (power > kLeast && magnitude < power * 0.75F) power /= 2;
  return std::copysign(power, part);
}

struct Adam {
  explicit Adam(std::size_t parameters) : first(parameters), second(parameters) {}

  void step(std::span<const float> gradient, double rate, std::span<float> parameters) {
    constexpr float kFirst = 0.9F, kSecond = 0.999F, kEpsilon = 1e-8F, kDecay = 0.01F;
    ++steps;
    const auto unbiased = static_cast<float>(std::sqrt(1 - std::pow(kSecond, steps)));
    const auto size = static_cast<float>(rate / (1 - std::pow(kFirst, steps))) * unbiased;
    const float shrink = 1 - static_cast<float>(rate) * kDecay;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      first[i] = kFirst * first[i] + (1 - kFirst) * gradient[i];
      second[i] = kSecond * second[i] + (1 - kSecond) * gradient[i] * gradient[i];
      parameters[i] = shrink * parameters[i] - size * first[i] / (std::sqrt(second[i]) + kEpsilon * unbiased);
    }
  }

  std::vector<float> first, second;
  int steps = 0;
};

// A ring of so many, which reduces and gathers.
double sent_by_each(double bytes, std::size_t sites) {
  return 2 * bytes * static_cast<double>(sites - 1) / static_cast<double>(sites);
}

// Sites with their texts, and the test.
class Sites {
 public:
  Sites(const SitesOptions& options, std::uint64_t seed)
      : options_(options), seed_(seed), model_(options.model) {
    const TextOf of{.seed = seed, .sites = options.sites, .apart = options.apart};
    for (int site = 0; site < options.sites; ++site) {
      TextOf own = of;
      own.site = site;
      texts_.push_back(draw_text(options.language, own, options.characters));
    }
    const auto context = static_cast<std::size_t>(options.model.context);
    test_ = draw_text(options.language, of, 2 * options.held_back + context);
    for (std::size_t place = context; place < test_.size(); ++place)
      (place < context + options.held_back ? test_places_ : validation_places_).push_back(place);
    places_.resize(static_cast<std::size_t>(options.batch));
    replicas_.assign(texts_.size(), model_.initial_parameters(seed));
    optimisers_.assign(texts_.size(), Adam(replicas_[0].size()));
    gradients_.assign(texts_.size(), std::vector<float>(replicas_[0].size()));
  }

  Trained train(const Exchanges& exchanges) {
    Trained result;
    if (exchanges.every == 0) return train_in_every_step(result);
    OuterSteps outer(exchanges, replicas_[0]);
    look(result, outer.global());
    for (int step = 1; step <= options_.steps; ++step) {
      for (std::size_t site = 0; site < texts_.size(); ++site) {
        learn(site, step);
        optimisers_[site].step(gradients_[site], rate(step), replicas_[site]);
      }
      const double sent = outer.after(step, replicas_);
      result.sent_bytes += sent;
      result.peak_bytes = std::max(result.peak_bytes, sent / std::max(1, exchanges.delay));
      if (due(step)) look(result, outer.global());
    }
    const double sent = outer.finish(replicas_);
    result.sent_bytes += sent;
    if (result.peak_bytes == 0) result.peak_bytes = sent;
    look(result, outer.global());
    result.validation = model_.loss(outer.global(), test_, validation_places_);
    return result;
  }

 private:
  Trained train_in_every_step(Trained& result) {
    look(result, replicas_[0]);
    const auto share = 1 / static_cast<float>(texts_.size());
    result.peak_bytes = sent_by_each(4.0 * static_cast<double>(replicas_[0].size()), texts_.size());
    for (int step = 1; step <= options_.steps; ++step) {
      for (std::size_t site = 0; site < texts_.size(); ++site) {
        learn(site, step, replicas_[0]);
        if (site > 0)
          for (std::size_t i = 0; i < gradients_[0].size(); ++i) gradients_[0][i] += gradients_[site][i];
      }
      for (float& value : gradients_[0]) value *= share;
      optimisers_[0].step(gradients_[0], rate(step), replicas_[0]);
      result.sent_bytes += result.peak_bytes;
      if (due(step) || step == options_.steps) look(result, replicas_[0]);
    }
    result.validation = model_.loss(replicas_[0], test_, validation_places_);
    return result;
  }

  void learn(std::size_t site, int step) { learn(site, step, replicas_[site]); }
  void learn(std::size_t site, int step, std::span<const float> parameters) {
    codec::Draw draw(seed_, step, kBatches + site);
    const auto context = static_cast<std::size_t>(options_.model.context);
    for (std::size_t& place : places_) place = context + draw.below(texts_[site].size() - context);
    model_.learn(parameters, texts_[site], places_, gradients_[site]);
  }
  [[nodiscard]] double rate(int step) const {
    const double done = static_cast<double>(step) / options_.steps;
    return options_.learning_rate * (0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi * done)));
  }
  [[nodiscard]] bool due(int step) const {
    return step < options_.steps && step % std::max(1, options_.steps / options_.looks) == 0;
  }
  void look(Trained& result, std::span<const float> parameters) {
    result.loss = model_.loss(parameters, test_, test_places_);
    result.by_bytes.emplace_back(result.sent_bytes, result.loss);
  }

  const SitesOptions& options_;
  std::uint64_t seed_;
  CharacterModel model_;
  std::vector<Text> texts_;
  Text test_;
  std::vector<std::size_t> test_places_, validation_places_, places_;
  std::vector<std::vector<float>> replicas_, gradients_;
  std::vector<Adam> optimisers_;
};

}  // namespace

int bits_of(Carried carried) {
  switch (carried) {
    case Carried::fp32:
      return 32;
    case Carried::bf16:
      return 16;
    case Carried::eight_bits:
      return 8;
    case Carried::four_bits:
      break;
  }
  return 4;
}

std::optional<Carried> carried_in(int bits) {
  for (const Carried one : {Carried::fp32, Carried::bf16, Carried::eight_bits, Carried::four_bits})
    if (bits_of(one) == bits) return one;
  return std::nullopt;
}

void round_as(Carried carried, std::span<float> values) {
  if (carried == Carried::fp32) return;
  if (carried == Carried::bf16) {
    for (float& value : values) round_to_bf16(value);
    return;
  }
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  if (largest == 0) return;
  constexpr float kMost = 127;  // of 8 bits
  for (float& value : values)
    value = carried == Carried::eight_bits ? std::round(value / largest * kMost) / kMost * largest
                                           : nearest_power(value / largest) * largest;
}

Exchanges local_sgd(int every) { return {.every = every, .rate = 1, .momentum = 0}; }

std::string name_of(const Exchanges& one) {
  if (one.every == 0) return "every step";
  const bool plain = one.rate == 1 && one.momentum == 0;
  std::string name = fmt::format("{}, H {}", plain ? "local SGD" : "DiLoCo", one.every);
  if (!plain && one.momentum != Exchanges{}.momentum) name += fmt::format(", momentum {:g}", one.momentum);
  if (one.fragments > 1) name += fmt::format(", {} fragments", one.fragments);
  if (one.delay > 0) name += fmt::format(", delay {}", one.delay);
  if (one.mixing > 0) name += fmt::format(", mixing {:g}", one.mixing);
  if (one.carried == Carried::bf16) return name + ", bf16";
  return one.carried == Carried::fp32 ? name : name + fmt::format(", {} bits", bits_of(one.carried));
}

OuterSteps::OuterSteps(const Exchanges& exchanges, std::vector<float> start)
    : exchanges_(exchanges),
      global_(std::move(start)),
      velocity_(global_.size()),
      moved_(static_cast<std::size_t>(std::max(exchanges.fragments, 0))) {
  if (exchanges.every < 1 || exchanges.fragments < 1 || exchanges.every % exchanges.fragments != 0)
    throw ConfigError(fmt::format("{} fragments do not divide a round of {} steps: give a divisor",
                                  exchanges.fragments, exchanges.every));
  if (exchanges.delay < 0 || exchanges.delay >= exchanges.every / exchanges.fragments)
    throw ConfigError(fmt::format("a delay of {} steps reaches the next turn, {} steps later: give less",
                                  exchanges.delay, exchanges.every / exchanges.fragments));
}

Range OuterSteps::range_of(int fragment) const {
  const auto size = static_cast<std::int64_t>(global_.size());
  return {size * fragment / exchanges_.fragments, size * (fragment + 1) / exchanges_.fragments};
}

double OuterSteps::send(int fragment, int due, const std::vector<std::vector<float>>& replicas) {
  const Range range = range_of(fragment);
  const auto begin = static_cast<std::size_t>(range.begin), size = static_cast<std::size_t>(range.size());
  InFlight one{.fragment = fragment, .due = due, .mean = std::vector<float>(size)};
  std::vector<float> change(size);
  for (const std::vector<float>& replica : replicas) {
    for (std::size_t i = 0; i < size; ++i) change[i] = global_[begin + i] - replica[begin + i];
    round_as(exchanges_.carried, change);
    for (std::size_t i = 0; i < size; ++i) one.mean[i] += change[i];
  }
  for (float& value : one.mean) value /= static_cast<float>(replicas.size());
  round_as(exchanges_.carried, one.mean);
  in_flight_.push_back(std::move(one));
  const double scale = bits_of(exchanges_.carried) < 16 ? sizeof(float) : 0;
  return sent_by_each(static_cast<double>(size) * bits_of(exchanges_.carried) / 8 + scale, replicas.size());
}

void OuterSteps::apply(const InFlight& one, float mixing, std::vector<std::vector<float>>& replicas) {
  const Range range = range_of(one.fragment);
  const auto begin = static_cast<std::size_t>(range.begin);
  for (std::size_t i = 0; i < one.mean.size(); ++i) {
    float& velocity = velocity_[begin + i];
    velocity = moved_[static_cast<std::size_t>(one.fragment)] ? exchanges_.momentum * velocity + one.mean[i]
                                                              : one.mean[i];
    global_[begin + i] -= exchanges_.rate * (one.mean[i] + exchanges_.momentum * velocity);
    for (std::vector<float>& replica : replicas)
      replica[begin + i] = mixing * replica[begin + i] + (1 - mixing) * global_[begin + i];
  }
  moved_[static_cast<std::size_t>(one.fragment)] = true;
}

double OuterSteps::after(int step, std::vector<std::vector<float>>& replicas) {
  double sent = 0;
  const int apart = exchanges_.every / exchanges_.fragments;
  if (step % apart == 0)
    sent = send((step / apart - 1) % exchanges_.fragments, step + exchanges_.delay, replicas);
  while (!in_flight_.empty() && in_flight_.front().due <= step) {
    apply(in_flight_.front(), exchanges_.mixing, replicas);
    in_flight_.erase(in_flight_.begin());
  }
  return sent;
}

double OuterSteps::finish(std::vector<std::vector<float>>& replicas) {
  for (const InFlight& one : in_flight_) apply(one, exchanges_.mixing, replicas);
  in_flight_.clear();
  double sent = 0;
  for (int fragment = 0; fragment < exchanges_.fragments; ++fragment) {
    const Range range = range_of(fragment);
    const bool same = std::all_of(replicas.begin(), replicas.end(), [&](const std::vector<float>& replica) {
      return std::equal(replica.begin() + range.begin, replica.begin() + range.end,
                        global_.begin() + range.begin);
    });
    if (same) continue;
    sent += send(fragment, 0, replicas);
    apply(in_flight_.front(), 0, replicas);
    in_flight_.clear();
  }
  return sent;
}

Trained train_on_sites(const SitesOptions& options, const Exchanges& exchanges, std::uint64_t seed) {
  if (options.sites < 1 || options.steps < 1 || options.batch < 1)
    throw ConfigError(fmt::format("{} sites that make {} steps of {} samples learn nothing: give 1 or more",
                                  options.sites, options.steps, options.batch));
  return Sites(options, seed).train(exchanges);
}

}  // namespace dear::studies::rounds
