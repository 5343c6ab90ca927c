#include "studies/rounds/report.h"
#include "studies/training/paired.h"
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::studies::rounds {

using studies::Cases;
using studies::Judged;
using studies::Statement;
using training::Paired;
using training::paired;
namespace {

constexpr int kPeriods[] = {8, 32, 100, 400};  // steps of a round
constexpr int kUsual = 32;
constexpr int kFragments = 4, kDelay = 5;
constexpr float kMixing = 0.5F;
// Rounds that are few need an outer optimiser that remembers less.
constexpr float kShortMemory = 0.5F;

Exchanges diloco(int every) { return {.every = every}; }
Exchanges remembering_less(int every) { return {.every = every, .momentum = kShortMemory}; }
Exchanges in_fragments(int delay, float mixing) {
  return {
      .every = kUsual, .fragments = kFragments, .delay = delay, .mixing = mixing, .momentum = kShortMemory};
}
Exchanges carried(int every, int bits) {
  const std::optional<Carried> as = carried_in(bits);
  if (!as) throw ConfigError(fmt::format("{} bits are not studied: 4, 8, 16 or 32", bits));
  return {.every = every, .momentum = kShortMemory, .carried = *as};
}
Exchanges streaming(const PublishedRounds& published) {
  Exchanges one = in_fragments(kDelay, kMixing);
  one.carried = carried(kUsual, published.streaming_bits).carried;
  return one;
}

// The steps of the shorter trainings.
int usual_steps(const std::vector<Learnt>& learnt) { return learnt.front().lesson.steps; }
int longest_steps(const std::vector<Learnt>& learnt) {
  int most = 0;
  for (const Learnt& one : learnt) most = std::max(most, one.lesson.steps);
  return most;
}

// By how much more nats a character costs.
Paired gap(const Learnt& one, const Learnt& other) { return paired(one.losses(), other.losses()); }

class Lessons {
 public:
  explicit Lessons(const std::vector<Learnt>& learnt) : learnt_(learnt) {}
  [[nodiscard]] const Learnt& of(const Exchanges& exchanges, bool apart = false) const {
    return find(learnt_, {exchanges, apart, usual_steps(learnt_)});
  }
  [[nodiscard]] const Learnt& each(bool apart = false) const { return of(kEveryStep, apart); }

 private:
  const std::vector<Learnt>& learnt_;
};

std::string memory_text(const Exchanges& exchanges) {
  return fmt::format("outer rate {:g} and momentum {:g}", exchanges.rate, exchanges.momentum);
}

Statement of_cost(const Lessons& lessons, Exchanges (*exchanges)(int every)) {
  Cases cases(fmt::format("DiLoCo with {} learns as every-step training does, within {:g} nats",
                          memory_text(exchanges(kUsual)), kCloseLoss));
  for (const int every : kPeriods) {
    const Paired more = gap(lessons.each(), lessons.of(exchanges(every)));
    cases.add(more.at_most(kCloseLoss), fmt::format("H {}: {}", every, more.text()));
  }
  return cases.finish(" nats");
}

Statement of_means(const Lessons& lessons) {
  Cases cases("Plain means of the replicas (local SGD) learn so, too");
  for (const int every : kPeriods) {
    const Paired more = gap(lessons.each(), lessons.of(local_sgd(every)));
    cases.add(more.at_most(kCloseLoss), fmt::format("H {}: {}", every, more.text()));
  }
  return cases.finish(" nats");
}

Statement of_outer_steps(const Lessons& lessons) {
  Cases cases(fmt::format("An outer optimiser with {} learns better than plain means",
                          memory_text(remembering_less(kUsual))));
  for (const int every : kPeriods) {
    const Paired better = gap(lessons.of(remembering_less(every)), lessons.of(local_sgd(every)));
    cases.add(better.above(0), fmt::format("H {}: {}", every, better.text()));
  }
  return cases.finish(" nats");
}

Statement of_memory(const Lessons& lessons) {
  Cases cases(
      fmt::format("In trainings as short as these an outer momentum of {:g} learns better than one of {:g}",
                  kShortMemory, Exchanges{}.momentum));
  for (const int every : kPeriods) {
    const Paired better = gap(lessons.of(remembering_less(every)), lessons.of(diloco(every)));
    cases.add(better.above(0), fmt::format("H {}: {}", every, better.text()));
  }
  return cases.finish(" nats");
}

Statement of_growth(const Lessons& lessons) {
  Cases cases("The fewer exchanges, the more plain means lose");
  for (std::size_t i = 1; i < std::size(kPeriods); ++i) {
    const Paired more = gap(lessons.of(local_sgd(kPeriods[i - 1])), lessons.of(local_sgd(kPeriods[i])));
    cases.add(more.above(0), fmt::format("H {} after {}: {}", kPeriods[i], kPeriods[i - 1], more.text()));
  }
  return cases.finish(" nats");
}

Statement of_bytes(const Lessons& lessons) {
  Cases cases(fmt::format(
      "To the loss that rounds of H steps end at, every-step training sends {:g} H times as many bytes",
      kOfThePeriodInBytes));
  for (const int every : kPeriods) {
    const Learnt& seldom = lessons.of(remembering_less(every));
    const double times = bytes_until(lessons.each(), seldom.mean_loss()) / seldom.sent_bytes();
    cases.add(times >= kOfThePeriodInBytes * every,
              std::isfinite(times)
                  ? fmt::format("H {}: {:.3g} times, to {:.3f} nats", every, times, seldom.mean_loss())
                  : fmt::format("H {}: it never gets to {:.3f} nats", every, seldom.mean_loss()));
  }
  return cases.finish();
}

Statement costs_nothing(const Lessons& lessons, const std::string& says,
                        const std::vector<std::pair<std::string, Exchanges>>& variants,
                        const Exchanges& beside) {
  Cases cases(says);
  for (const auto& [name, exchanges] : variants) {
    const Paired more = gap(lessons.of(beside), lessons.of(exchanges));
    cases.add(more.at_most(kCloseLoss), fmt::format("{}: {}", name, more.text()));
  }
  return cases.finish(" nats");
}

Statement of_published_steps(const PublishedRounds& published, const std::vector<Learnt>& learnt) {
  Cases cases(
      fmt::format("An exchange in {} steps learns as every-step training does (published, of 8 workers)",
                  published.diloco_steps));
  // Nobody can say which length of a small training stands for that of a large one.
  for (const auto exchanges : {diloco, remembering_less}) {
    std::vector<Paired> more;
    std::string seen;
    for (const int steps : {usual_steps(learnt), longest_steps(learnt)}) {
      more.push_back(gap(find(learnt, {kEveryStep, false, steps}),
                         find(learnt, {exchanges(published.diloco_steps), false, steps})));
      seen += fmt::format(", {} steps: {}", steps, more.back().text());
    }
    const Judged one = more.front().at_most(kCloseLoss), other = more.back().at_most(kCloseLoss);
    const bool shrinks = more.back().mean < more.front().mean;
    const Judged judged = one == other && (one == Judged::holds || !shrinks) ? one : Judged::not_comparable;
    cases.add(judged, memory_text(exchanges(1)) + seen + " nats");
  }
  return cases.finish();
}

Statement of_published_bytes(const PublishedRounds& published, const Lessons& lessons) {
  Cases cases(fmt::format("Rounds of {} steps and {} bits send {:g} times fewer bytes (published)",
                          published.intellect_steps, published.intellect_bits, published.intellect_bytes));
  const double fewer = lessons.each().sent_bytes() /
                       lessons.of(carried(published.intellect_steps, published.intellect_bits)).sent_bytes();
  cases.add(std::abs(fewer / published.intellect_bytes - 1) <= kCloseBytes,
            fmt::format("{:.4g} times", fewer));
  return cases.finish();
}

// How many steps an exchange may take, and in how many fragments, is chosen, and decides.
Statement of_published_peak(const PublishedRounds& published, const Lessons& lessons) {
  Cases cases(fmt::format(
      "Fragments of {} bits that travel under steps need {:g} times less bandwidth at the peak (published)",
      published.streaming_bits, published.streaming_peak));
  const double each = lessons.each().by_seed.front().peak_bytes;
  const auto times = [&](const Exchanges& one) { return each / lessons.of(one).by_seed.front().peak_bytes; };
  Exchanges whole = carried(kUsual, published.streaming_bits);
  const double least = times(whole), most = times(streaming(published));
  const bool low = least >= published.streaming_peak, high = most >= published.streaming_peak;
  cases.add(low == high ? (high ? Judged::holds : Judged::fails) : Judged::not_comparable,
            fmt::format("{:.3g} times as a whole at once, {:.3g} times in {} fragments under {} steps", least,
                        most, kFragments, kDelay));
  return cases.finish();
}

Statement of_apart(const Lessons& lessons) {
  Cases cases("Rounds learn as well where each site prefers its own words");
  for (const auto& [name, exchanges] :
       {std::pair{"DiLoCo", remembering_less(kUsual)}, {"local SGD", local_sgd(kUsual)}}) {
    const Paired more = gap(lessons.each(true), lessons.of(exchanges, true));
    cases.add(more.at_most(kCloseLoss), fmt::format("{}, H {}: {}", name, kUsual, more.text()));
  }
  return cases.finish(" nats");
}

}  // namespace

double bytes_until(const Learnt& learnt, double loss) {
  // Means over seeds, whose looks are at the same steps.
  const std::size_t looks = learnt.by_seed.front().by_bytes.size();
  for (std::size_t look = 0; look < looks; ++look) {
    double mean = 0;
    for (const Trained& one : learnt.by_seed)
      mean += one.by_bytes[look].second / static_cast<double>(learnt.by_seed.size());
    if (mean <= loss) return learnt.by_seed.front().by_bytes[look].first;
  }
  return std::numeric_limits<double>::infinity();
}

std::vector<Lesson> lessons_of(const PublishedRounds& published, const LearningOptions& options) {
  const int steps = options.sites.steps, longer = options.longer * steps;
  std::vector<Lesson> all;
  const auto add = [&](const Lesson& lesson) {
    if (std::find(all.begin(), all.end(), lesson) == all.end()) all.push_back(lesson);
  };
  add({kEveryStep, false, steps});
  for (const int every : kPeriods)
    for (const Exchanges& one : {local_sgd(every), diloco(every), remembering_less(every)})
      add({one, false, steps});
  add({in_fragments(0, 0), false, steps});
  add({in_fragments(kDelay, 0), false, steps});
  add({in_fragments(kDelay, kMixing), false, steps});
  for (const int bits : {published.opendiloco_bits, 8, published.streaming_bits})
    add({carried(kUsual, bits), false, steps});
  add({streaming(published), false, steps});
  add({carried(published.intellect_steps, published.intellect_bits), false, steps});
  for (const Exchanges& one : {kEveryStep, local_sgd(kUsual), remembering_less(kUsual)})
    add({one, true, steps});
  for (const int length : {steps, longer})
    for (const Exchanges& one :
         {kEveryStep, diloco(published.diloco_steps), remembering_less(published.diloco_steps)})
      add({one, false, length});
  return all;
}

std::vector<Statement> statements_on_learning(const PublishedRounds& published,
                                              const std::vector<Learnt>& learnt) {
  const Lessons lessons(learnt);
  return {
      of_cost(lessons, diloco),
      of_cost(lessons, remembering_less),
      of_means(lessons),
      of_outer_steps(lessons),
      of_memory(lessons),
      of_growth(lessons),
      of_bytes(lessons),
      costs_nothing(lessons, "Fragments that take turns cost nothing beside the whole at once",
                    {{fmt::format("{} fragments", kFragments), in_fragments(0, 0)}},
                    remembering_less(kUsual)),
      costs_nothing(lessons,
                    fmt::format("An exchange that travels under {} steps costs nothing, either", kDelay),
                    {{"the steps meanwhile thrown away", in_fragments(kDelay, 0)},
                     {fmt::format("mixed by {:g}", kMixing), in_fragments(kDelay, kMixing)}},
                    in_fragments(0, 0)),
      costs_nothing(
          lessons,
          fmt::format("Outer gradients of {} bits cost nothing (published)", published.opendiloco_bits),
          {{name_of(carried(kUsual, published.opendiloco_bits)), carried(kUsual, published.opendiloco_bits)}},
          remembering_less(kUsual)),
      costs_nothing(
          lessons,
          fmt::format("Outer gradients of {} bits do not cost anything, either (published)",
                      published.streaming_bits),
          {{name_of(carried(kUsual, published.streaming_bits)), carried(kUsual, published.streaming_bits)},
           {name_of(streaming(published)), streaming(published)}},
          remembering_less(kUsual)),
      of_published_steps(published, learnt),
      of_published_bytes(published, lessons),
      of_published_peak(published, lessons),
      of_apart(lessons)};
}

}  // namespace dear::studies::rounds
