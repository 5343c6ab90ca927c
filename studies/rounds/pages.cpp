#include "studies/rounds/report.h"
#include "studies/training/paired.h"
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/units.h"

namespace dear::studies::rounds {

using studies::percent;
namespace {

constexpr const char* kMinimaOpening = R"(# The study of TAMUNA and its relatives

What is said of local steps, control variates, masks and cohorts (Scaffnew: Mishchenko et al. 2022, arXiv 2202.09357; CompressedScaffnew: Condat, Agarsky and
Richtarik 2022, arXiv 2210.13277; TAMUNA: Condat et al. 2023, arXiv 2302.09832), each statement beside what [`dear rounds run`](../../rounds.md) does. Written by `dear study
rounds`; the same bytes every time on one kind of processor. Every run is real arithmetic in one process, on problems whose minimum is known; nothing was timed. The papers' figures were not
available to us, so statements are those that follow from the theorems, and goals; a verdict is computed, never typed: the rules stand below the table.

)";

constexpr const char* kAreasOpening = R"(# The study of CoDA

What is said of maximising the area under the ROC curve by rounds (CoDA: Guo et al. 2020, arXiv 2005.02426; CODASCA: Yuan et al. 2021, arXiv 2102.04635), each statement
beside what [`dear rounds run --problem auc`](../../rounds.md#auc) does. Written by `dear study rounds`; the same bytes every time on one kind of processor. The papers' networks and figures
were not available to us: scores are linear here, samples are drawn, and the optimum has a closed form. A verdict is computed, never typed: the rules stand below the table.

)";

constexpr const char* kLearningOpening = R"(# The study of DiLoCo

What is said of replicas that exchange seldom (DiLoCo: Douillard et al. 2023, arXiv 2311.08105; Streaming DiLoCo: 2025, arXiv 2501.18512; local SGD: Stich 2019, arXiv 1805.09767), each
statement beside what a small model of characters learns with the rules of [`dear.distribute(rounds=...)`](../../rounds_live.md). Written by `dear study rounds`; the same bytes every time on one kind
of processor. The model was trained, in one process; nothing was timed, and bytes are counted. A verdict is computed, never typed: the rules stand below the table.

)";

std::string said(const std::vector<studies::Statement>& statements) {
  return "## What is said, and what we saw\n\n" + studies::table_of(statements) + "\n";
}

std::string number_text(double number) { return fmt::format("{:.3g}", number); }

std::string problem_text(const LogisticShape& shape) {
  return fmt::format("{} clients with {} rows each in {} dimensions, L / mu = {:g}", shape.clients,
                     shape.rows, shape.dimension, shape.condition);
}

std::string runs_table(const MinimaFindings& findings, const char* part) {
  std::string text =
      "| dimensions | L / mu | algorithm | cohort | owners | steps a round | rounds | reals up | fewer than "
      "gd "
      "| error | end |\n|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const MinimumRun* const one : findings.part(part)) {
    const double fewer = fewer_than_descent(findings, *one);
    text += fmt::format("| {} | {:g} | `{}` | {} | {} | {:.3g} | {:.0f} | {:.0f} | {} | {:.1e} | {} |\n",
                        one->problem.dimension, one->problem.condition, one->algorithm, one->cohort,
                        one->owners, one->steps_a_round, one->rounds, one->up,
                        fewer > 0 ? number_text(fewer) : "-", one->error, methods::rounds::name_of(one->end));
  }
  return text + "\n";
}

std::string on_cohorts(const MinimaFindings& findings) {
  const MinimumRun *cohort = nullptr, *all = nullptr;
  for (const MinimumRun* const one : findings.part("large")) {
    if (one->algorithm == "tamuna") cohort = one;
    if (one->algorithm == "compressed-scaffnew" && one->owners == 4) all = one;
  }
  if (cohort == nullptr || all == nullptr) return "";
  return fmt::format(
      "With a cohort of {} of {} clients TAMUNA sends {} times fewer reals of a client than gradient "
      "descent, not {} times as "
      "with all: rounds stay as many, and each of fewer clients owns {} times as many coordinates, "
      "ceil(owners x dimension / "
      "cohort). All clients together send as many reals, whatever the cohort. So a cohort is for clients "
      "that cannot all answer, "
      "and not for fewer reals of one.\n\n",
      cohort->cohort, cohort->problem.clients, number_text(fewer_than_descent(findings, *cohort)),
      number_text(fewer_than_descent(findings, *all)), all->cohort / cohort->cohort);
}

std::string rates_table(const std::vector<RateRun>& runs) {
  std::string text =
      "| clients | cohort | owners | p | chi, of the largest | error of a round, promised | seen "
      "|\n|---|---|---|---|---|---|---|\n";
  for (const RateRun& one : runs)
    text += fmt::format("| {} | {} | {} | {:.3f} | {:g} | {:.4f} | {:.4f} |\n", one.clients, one.cohort,
                        one.owners, one.probability, one.of_largest_chi, std::exp(-one.promised),
                        std::exp(-one.seen));
  return text + "\n";
}

const char* shards_text(Shards shards) { return shards == Shards::alike ? "at random" : "sorted"; }

std::string areas_table(const AreasFindings& findings, bool exact) {
  std::string text =
      "| samples | algorithm | steps a round | rounds | reals of a client | AUC | at the optimum | distance "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (const AreaRun& one : findings.runs)
    if (one.exact == exact)
      text += fmt::format("| {} | `{}` | {} | {:.0f} | {:.0f} | {:.5f} | {:.5f} | {:.4f} |\n",
                          shards_text(one.shards), one.algorithm, one.every, one.rounds, one.reals,
                          one.mean_area(), one.mean_best(), one.mean_distance());
  return text + "\n";
}

std::string lessons_table(const std::vector<Learnt>& learnt) {
  std::string text =
      "| way | sites' texts | steps | inner step size | loss | to every step | bytes of a site | fewer | "
      "peak of a "
      "step |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const Learnt& one : learnt) {
    const Learnt& each = find(learnt, {kEveryStep, one.lesson.apart, one.lesson.steps});
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name_of(one.lesson.exchanges),
                        one.lesson.apart ? "differ" : "alike", one.lesson.steps, one.learning_rate,
                        training::mean_text(one.mean_loss(), one.deviation(), one.by_seed.size()),
                        &one == &each ? "" : training::paired(each.losses(), one.losses()).text(),
                        format_bytes(static_cast<std::int64_t>(one.sent_bytes())),
                        number_text(each.sent_bytes() / one.sent_bytes()),
                        format_bytes(static_cast<std::int64_t>(one.by_seed.front().peak_bytes)));
  }
  return text + "\n";
}

}  // namespace

std::string page_of_minima(const MinimaOptions& options, const MinimaFindings& findings) {
  std::string text = kMinimaOpening + said(statements_on_minima(findings));
  text += fmt::format(
      "Reals are those that a client which takes part has sent, until the squared distance to the minimum is "
      "{:g} of "
      "that at the start. Rounds and reals do not depend on the cohort where they are within {}. A slope "
      "counts in "
      "logarithms, and is that of a square root up to {:g}. The rate of a run is the slope of the logarithm "
      "of the "
      "mean of Psi over {}; it is kept from {} of the promised one on. What stalls ends above {:g}. Control "
      "variates sum to zero up to {:g}.\n\n",
      options.error, percent(kSameRounds), kRootSlope,
      counted(static_cast<std::size_t>(options.rate_runs), "run"), percent(kOfTheRate), kStalls, kZeroSum);
  text += fmt::format(
      "## Reals against error\n\nLogistic regression with a ridge, on rows that are drawn: {}.\n\n"
      "![Error against reals](reals.svg)\n\n",
      problem_text(options.small));
  text += runs_table(findings, "methods");
  text += fmt::format("Larger problems, such as {}:\n\n", problem_text(options.large.back()));
  text += runs_table(findings, "large") + on_cohorts(findings);
  text += "## By L / mu, and by participation\n\n![Fewer reals than gradient descent](gains.svg)\n\n";
  text += runs_table(findings, "condition") + runs_table(findings, "cohort");
  text +=
      fmt::format("## By owners\n\nMeans over {} of masks and coins.\n\n![Reals by owners](owners.svg)\n\n",
                  counted(static_cast<std::size_t>(options.draws), "seed"));
  text += runs_table(findings, "owners");
  text += fmt::format(
      "## Clients that drop out\n\nEach client that was drawn is absent with a probability of {:g}; "
      "the next of the round's order takes its place.\n\n",
      options.absence);
  text += runs_table(findings, "absence");
  text +=
      "## Rates\n\nQuadratic functions in 12 dimensions, L / mu = 50. Psi counts the distance of the points "
      "and of "
      "the control variates. A number above 1 diverges.\n\n";
  text += rates_table(findings.rates) + "With other chi:\n\n" + rates_table(findings.beyond) +
          "With a chi that counts the cohort, where the proof counts all clients:\n\n" +
          rates_table(findings.of_a_cohort);
  return text +
         "The problems stand for sets such as w8a and real-sim, and are not these; of deep nets the theorems "
         "promise "
         "nothing.\n";
}

std::string page_of_areas(const AreasOptions& options, const AreasFindings& findings) {
  std::string text = kAreasOpening + said(statements_on_areas(findings));
  text += fmt::format(
      "AUCs are equal within {:g}, as means over {}; rounds are fewer by at least {} of the steps of a "
      "round. Drift is "
      "the distance of the weights to the optimum, with exact gradients; it grows where it is more than "
      "twice as far. "
      "The speed-up is linear where the power of the clients is within {:g} of -1.\n\n",
      kSameArea, counted(static_cast<std::size_t>(options.seeds), "seed"), percent(kOfThePeriod),
      kSpeedUpSlope);
  const methods::rounds::AucShape& shape = options.shape;
  text += fmt::format(
      "## AUC against rounds\n\n{} clients with {} samples each in {} dimensions, {} positive; batches of "
      "{}, four stages "
      "of {} steps. Samples are dealt at random, or sorted by a feature. CODASCA sends two vectors a "
      "round.\n\n"
      "![AUC against rounds](auc.svg)\n\n",
      shape.clients, shape.rows, shape.dimension, percent(shape.positive), options.batch, options.steps);
  text += areas_table(findings, false);
  text += fmt::format(
      "## Drift\n\nThe same problem with the gradients of all samples, four stages of {} steps, so that "
      "nothing but the drift of "
      "clients to their own optimum is left.\n\n![Distance to the optimum](drift.svg)\n\n",
      options.exact_steps);
  text += areas_table(findings, true);
  text += fmt::format(
      "## Clients\n\nAs many samples in all, dealt to more clients, one stage of {} steps with 8 a round: "
      "the mean squared distance to the "
      "optimum over {}.\n\n| clients | squared distance |\n|---|---|\n",
      options.steps, counted(static_cast<std::size_t>(options.client_seeds), "seed"));
  for (const NoiseRun& one : findings.noise)
    text += fmt::format("| {} | {:.2e} |\n", one.clients, one.squared_distance);
  return text + "\nHow a network learns for AUC: [of your model](../../rounds.md#of-your-model).\n";
}

std::string page_of_learning(const PublishedRounds& published, const LearningOptions& options,
                             const std::vector<Learnt>& learnt) {
  std::string text = kLearningOpening + said(statements_on_learning(published, learnt));
  text += fmt::format(
      "Published figures ([published.json](published.json)): {}. Losses are compared seed by seed, {} in "
      "all: a figure is the mean difference and half the width of its "
      "interval of 95 % (Student's t), and a verdict wants the whole interval on one side, else it is "
      "undecided. A loss is close within {:g} nats. What "
      "holds at one length of training and not at another, or fails by a gap that shrinks with the length, "
      "is not comparable; so is "
      "what the number of fragments and the delay decide. A published factor is met within {}.\n\n",
      published.source, counted(static_cast<std::size_t>(options.seeds), "seed"), kCloseLoss,
      percent(kCloseBytes));
  const CharacterShape& model = options.sites.model;
  text += fmt::format(
      "## Loss against bytes\n\nA network of {} parameters (embeddings of the last {} characters, {} "
      "rectified units) learns the next character of a language "
      "that is drawn: {} words, as frequent as Zipf's law says, half of them following the word before. Each "
      "of {} sites has {} "
      "characters of its own and steps by AdamW on batches of {}; step sizes fall along a cosine, and of the "
      "first step sizes {} the best on other text is "
      "taken, for each way by itself. Losses are of {} further characters, by the global parameters after "
      "the last exchange. DiLoCo's outer optimiser is SGD with rate {:g} and "
      "Nesterov momentum {:g} where no other is named. H is steps of a round. Bytes are those that a site "
      "sends where collectives send no more than they must.\n\n"
      "![Loss against bytes](losses.svg)\n\n![Loss against steps of a round](steps.svg)\n\n",
      model.parameters(), model.context, model.hidden, options.sites.language.words, options.sites.sites,
      options.sites.characters, options.sites.batch, fmt::join(options.learning_rates, ", "),
      options.sites.held_back, Exchanges{}.rate, Exchanges{}.momentum);
  text += lessons_table(learnt);
  return text +
         "8 and 4 bits count in parts of the largest magnitude of a fragment: whole numbers of 127, and a "
         "sign with a power of two. The model is small and its "
         "trainings are short: they show what the rules do, and not how a model of billions of parameters "
         "learns. Time on links that are slow: [when rounds "
         "pay](../../rounds.md#when-do-rounds-pay), and [two "
         "hosts](../../measurements.md#training-by-rounds), measured.\n";
}

}  // namespace dear::studies::rounds
