#include "studies/homomorphic/report.h"

#include "studies/training/paired.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/units.h"

namespace dear::studies::homomorphic {
namespace {

constexpr const char* kIntroduction = R"(# The study of lossless homomorphic compression

What is said of lossless homomorphic compression (Li et al. 2024, arXiv 2402.07529), each statement beside what
DeAR's own sketches show. Written by `dear study homomorphic`. Two numbers are those of the abstract; the tables
of the paper were not available to us, so every table here is ours alone, and the other statements are those that
follow from the algorithm. Training in DeAR sends an index and then values by key, which no row and no rounding
come into ([compression](../../compression.md)): this study is of the paper's sketches. A verdict is computed, never typed: the rules stand below the table.

)";

std::string rules() {
  return fmt::format(
      "All keys come out where at least {} of the groups come out whole, and never where at most {} do; it "
      "is asked of "
      "groups "
      "of 10000 keys and more. Half is within {} of it; a "
      "density is as expected within {} of it; bytes are those of the bound from {} of it on; a loss is "
      "about as good up to {} above that of dense, by the differences seed by seed and their interval of "
      "95 % (Student's t): it is undecided where that is not wholly on one side.\n\n",
      studies::percent(kAlways), studies::percent(kNever), kHalf, studies::percent(kOfTheUnion),
      studies::percent(kOfTheBound), kCloseLoss);
}

std::string recovery_of(const RecoveryOptions& options, const std::vector<RecoveryRate>& rates) {
  std::string text = fmt::format(
      "## Recovery\n\nGroups of so many keys, each key in three rows, peeled by the codec: the share of {} "
      "groups that come out whole, the mean share of keys that stay, and the mean number of rounds of the "
      "groups that come out. The codec itself takes 1.3 rows for each key from 1000 keys on, and 1.5 to 2 "
      "for "
      "fewer.\n\n![Recovery](recovery.svg)\n\n| rows for each key |",
      options.trials);
  std::string rule = "\n|---|";
  for (const std::int64_t keys : options.keys) {
    text += fmt::format(" {} keys: whole | stay | rounds |", keys);
    rule += "---|---|---|";
  }
  text += rule + "\n";
  const std::size_t rooms = options.rows_per_key.size();
  for (std::size_t room = 0; room < rooms; ++room) {
    text += fmt::format("| {} |", options.rows_per_key[room]);
    for (std::size_t keys = 0; keys < options.keys.size(); ++keys) {
      const RecoveryRate& rate = rates[keys * rooms + room];
      text += fmt::format(" {} | {} | {} |", studies::percent(rate.whole), studies::percent(rate.left),
                          rate.whole > 0 ? fmt::format("{:.1f}", rate.rounds) : "");
    }
    text += "\n";
  }
  return text + "\n";
}

std::string losslessness_of(const LosslessnessOptions& options, const Findings& findings) {
  std::string text = fmt::format(
      "## Losslessness\n\nRandom vectors of {} elements in fixed point (int64), sketches sized for all keys "
      "of "
      "the union with 1.3 rows each, and for a part of them; beside the dense sum of the same integers. The "
      "same bits means every element.\n\n| workers | density of each | sized for | trials | the same bits | "
      "reported | wrong without a word |\n|---|---|---|---|---|---|---|\n",
      options.elements);
  for (const ExactSums& sums : findings.exact)
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", sums.workers,
                        studies::percent(sums.density), studies::percent(sums.sized_for), sums.trials,
                        sums.exact, sums.reported, sums.trials - sums.exact - sums.reported);
  text += fmt::format(
      "\nSums of four workers in fp32, {} elements of which a tenth is not zero on two of them, beside sums "
      "in "
      "fp64; rows for each key of the fullest owner. Heavy tails are magnitudes whose logarithm is "
      "half-normal "
      "with deviation 3.\n\n| values | rows for each key | error, norm | of a dense fp32 sum | largest "
      "error, "
      "of the largest value | elements off by over 0.1 % |\n|---|---|---|---|---|---|\n",
      options.elements_of_floats);
  for (const FloatError& error : findings.floats)
    text += fmt::format("| {} | {} | {:.2g} | {:.2g} | {:.2g} | {} |\n",
                        error.heavy_tailed ? "heavy tails" : "normal", error.rows_per_key, error.relative,
                        error.plain, error.largest, studies::percent(error.wrong));
  return text + "\n";
}

std::string sizes_of(const HomomorphicOptions& options, const Findings& findings) {
  std::string text = fmt::format(
      "## Bytes\n\nHow many times fewer bytes than dense fp32 gradients of {} a sketch has with {} rows for "
      "each key, by density of the union. An all-reduce sends index and rows twice, and the bound is of "
      "that. "
      "Owners have rows reduce-scattered to them and send back values alone, which may be less than the "
      "bound "
      "allows ({} ranks, index chosen by size; 1 where it goes dense).\n\n![Bytes](sizes.svg)\n\n| density | "
      "bound | with a bitmap | with a Bloom filter | with owners |\n|---|---|---|---|---|\n",
      format_bytes(4 * options.sizes.elements), options.sizes.rows_per_key, options.sizes.ranks);
  for (const SizeAt& size : findings.sizes)
    text += fmt::format("| {} | {:.3g} | {:.3g} | {:.3g} | {:.3g} |\n", studies::percent(size.density),
                        size.bound, size.bitmap, size.bloom, size.owners);
  text +=
      "\nWorkers whose values lie at the same places, and at places of their own, which is what a union does "
      "to "
      "the bytes; 1 where the gradients go dense.\n\n| density of each | workers | union expected | union "
      "seen | "
      "fewer bytes, same places | fewer bytes, own places |\n|---|---|---|---|---|---|\n";
  for (const UnionAt& one : findings.unions)
    text += fmt::format("| {} | {} | {} | {} | {:.3g} | {:.3g} |\n", studies::percent(one.density),
                        one.workers, studies::percent(one.expected), studies::percent(one.seen),
                        one.gain_of_same, one.gain_of_own);
  return text + "\n";
}

std::string codecs_of(const HomomorphicOptions& options, const Speeds& speeds) {
  const double bytes = 4 * static_cast<double>(options.traffic.elements);
  std::string text = fmt::format(
      "## Aggregation throughput\n\nEncoding, peeling and decoding, with a look for NaN and infinity at each "
      "mean, were measured on this machine, {}, load "
      "{:.1f}, on one thread, and are given for gradients of {}, in milliseconds: medians. Under a load "
      "above 1 "
      "times are too long: other programs ran. Keys are single elements. Of owners each peels its part of "
      "the "
      "keys. With a Bloom filter decoding looks every key up that there is.\n\n| density | rows for each key "
      "| "
      "index | sums | who peels | encode | peel | decode |\n|---|---|---|---|---|---|---|---|\n",
      speeds.machine, speeds.load, format_bytes(static_cast<std::int64_t>(bytes)));
  for (const SketchSpeed& one : speeds.sketches)
    text +=
        fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", studies::percent(one.density),
                    one.spec.room, name_of(one.spec.index), one.spec.exact ? "int64" : "fp32",
                    one.peeling == Peeling::everyone ? "everyone, all" : fmt::format("{} owners", one.ranks),
                    studies::milliseconds(bytes * one.times.encode_seconds_per_byte),
                    studies::milliseconds(bytes * one.times.second_encode_seconds_per_byte),
                    studies::milliseconds(bytes * one.times.decode_seconds_per_byte));
  return text + "\n";
}

std::string sending_of(const HomomorphicOptions& options, const Findings& findings) {
  const int ranks = options.speeds.ranks.front();
  std::string text = fmt::format(
      "How many times as many gradients a second are added up as by a dense ring all-reduce, {} ranks. "
      "Sending "
      "is computed, not measured: rings in closed form, {} a message; nothing is hidden under computation. "
      "As "
      "in the paper, index and rows are all-reduced and everyone peels all; or owners of rows peel "
      "and "
      "send values back. The last columns say from which bandwidth on the sketch takes longer than "
      "dense.\n\n![Aggregation throughput](throughput.svg)\n\n| density | index | sums | who peels | {} of "
      "the bound |",
      ranks, format_seconds(options.traffic.alpha_seconds), kThroughputOfTheBound);
  std::string rule = "\n|---|---|---|---|---|";
  for (const double bits : options.bits_per_second) {
    text += fmt::format(" {:g} Gb/s |", 1e-9 * bits);
    rule += "---|";
  }
  for (const int size : options.speeds.ranks) {
    text += fmt::format(" loses from, {} ranks |", size);
    rule += "---|";
  }
  text += rule + "\n";
  const auto row = [&](SketchSpec::Index index, Peeling peeling, double density, bool exact) {
    const auto speed = [&](int size) {
      return findings.speed_of(index, peeling, peeling == Peeling::everyone ? 1 : size, density, exact);
    };
    text += fmt::format("| {} | {} | {} | {} | {:.3g} |", studies::percent(density), name_of(index),
                        exact ? "int64" : "fp32", peeling == Peeling::everyone ? "everyone" : "owners",
                        kThroughputOfTheBound * 32 / (1 + 32 * options.sizes.rows_per_key * density));
    for (const double bits : options.bits_per_second)
      text += fmt::format(" {:.3g} |", throughput(options, speed(ranks), ranks, bits / 8));
    for (const int size : options.speeds.ranks)
      text += exact && size != ranks
                  ? " |"
                  : fmt::format(" {} |", studies::bandwidth_text(studies::loses_from(
                                             sketch_line(options.traffic, speed(size), size),
                                             studies::dense_line(options.traffic, size))));
    text += "\n";
  };
  for (const double density : options.speeds.densities) {
    for (const SketchSpec::Index index : {SketchSpec::Index::bitmap, SketchSpec::Index::bloom})
      for (const Peeling peeling : {Peeling::everyone, Peeling::owners}) row(index, peeling, density, false);
    row(SketchSpec::Index::bitmap, Peeling::owners, density, true);
  }
  return text + "\n";
}

std::string learning_of(const LearningOptions& options, const Findings& findings) {
  const RecommenderShape& model = options.model;
  const MethodLearned& dense = findings.learned_with({});
  std::string text = fmt::format(
      "## A recommender learns\n\nNeural collaborative filtering (He et al. 2017, "
      "doi:10.1145/3038912.3052569), {} parameters: a vector of {} for each of {} users and {} items, and "
      "two "
      "hidden layers of {} and {}. Generated ratings: users and items by Zipf's law, likes by hidden "
      "factors. "
      "{} workers, {} steps of batches of {} a worker, SGD without momentum. Every tensor is encoded. Of "
      "learning rates {} the best is that of the lowest mean loss on {} ratings for validation; the loss is "
      "that "
      "on as many others: mean and standard deviation over {} seeds. Bytes are those that a worker sends "
      "where "
      "collectives send no more than they must; the curve of a seed is compared with dense at dense SGD's "
      "best learning rate, in all steps.\n\n![Losses](losses.svg)\n\n| compression | best learning rate | "
      "loss "
      "| at dense SGD's rate | apart from dense, at most | KB sent a step | times less than dense | diverged "
      "|\n|---|---|---|---|---|---|---|---|\n",
      model.parameters(), model.width, model.users, model.items, model.first, model.second, options.workers,
      options.steps, options.batch, fmt::join(options.learning_rates, ", "), options.held_back,
      options.seeds);
  for (const MethodLearned& one : findings.learned) {
    int diverged = 0;
    double most = 0;
    for (const LearnedAtRate& at_rate : one.rates)
      for (const Learned& run : at_rate.by_seed) diverged += run.diverged ? 1 : 0;
    for (std::size_t seed = 0; seed < dense.at_best().by_seed.size(); ++seed)
      most = std::max(
          most, apart(dense.at_best().by_seed[seed], one.rates[dense.best].by_seed[seed], options.steps));
    text += fmt::format("| `{}` | {} | {} | {:.4f} | {:.2g} | {:.4g} | {:.3g} | {} of {} |\n",
                        name_of(one.method), one.at_best().learning_rate,
                        training::mean_text(one.at_best().mean_test(), one.at_best().deviation(),
                                            one.at_best().by_seed.size(), 4),
                        one.rates[dense.best].mean_test(), most, 1e-3 * one.at_best().mean_bytes(),
                        dense.at_best().mean_bytes() / one.at_best().mean_bytes(), diverged,
                        one.rates.size() * static_cast<std::size_t>(options.seeds));
  }
  return text + "\n";
}

std::string iterations_of(const HomomorphicOptions& options, const Findings& findings) {
  const RecommenderShape& shape = findings.speeds.recommenders.front().shape;
  std::string text = fmt::format(
      "## Iterations of a recommender\n\nA larger one, {} parameters, {} users and {} items, {} ratings a "
      "worker "
      "and step. Computation (forward, backward and the update of all parameters, one thread) and the codec "
      "were "
      "measured on the machine above, sending is computed, and nothing is hidden under computation: "
      "milliseconds of an iteration dense, as a sketch (owners peel), and how many times as many iterations "
      "that is.\n\n| ranks | union | block | computation |",
      shape.parameters(), shape.users, shape.items, findings.speeds.recommenders.front().batch);
  std::string rule = "\n|---|---|---|---|";
  for (const double bits : options.bits_per_second) {
    text += fmt::format(" {:g} Gb/s: dense | sketch | times |", 1e-9 * bits);
    rule += "---|---|---|";
  }
  text += rule + "\n";
  for (const RecommenderSpeed& one : findings.speeds.recommenders) {
    text += fmt::format("| {} | {} | {} | {} |", one.sketch.ranks, studies::percent(one.density),
                        one.sketch.spec.block, studies::milliseconds(one.compute_seconds));
    for (const double bits : options.bits_per_second) {
      const double dense = one.compute_seconds + dense_line_of(options, one).seconds(bits / 8);
      const double sketch = one.compute_seconds + sketch_line_of(options, one).seconds(bits / 8);
      text += fmt::format(" {} | {} | {:.3g} |", studies::milliseconds(dense), studies::milliseconds(sketch),
                          dense / sketch);
    }
    text += "\n";
  }
  return text +
         "\nValues by key over real wires stand in "
         "[measurements](../../measurements.md#compressed-gradients); "
         "how "
         "much is hidden under computation is what `dear plan --compress sketch` says of a model and a "
         "network.\n";
}

}  // namespace

std::string report_of(const HomomorphicOptions& options, const Findings& findings) {
  return kIntroduction +
         ("## What is said, and what we saw\n\n" + studies::table_of(judge(options, findings)) + "\n") +
         rules() + studies::findings_of(without_verdict(options, findings)) +
         recovery_of(options.recovery, findings.recovery) + losslessness_of(options.losslessness, findings) +
         sizes_of(options, findings) + codecs_of(options, findings.speeds) + sending_of(options, findings) +
         learning_of(options.learning, findings) + iterations_of(options, findings);
}

}  // namespace dear::studies::homomorphic
