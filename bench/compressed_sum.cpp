// The mean of gradients over all ranks, dense and compressed, in turns on one group: seconds, bytes, and the
// bandwidth below which a compression pays. Over shaped wires:
//   bench/hosts up 2 100mbit
//   bench/hosts mpirun build/release/bench/bench_compressed_sum --elements 4194304 --density 0.05
// Gradients are generated: of `density` of the elements one rank at least has a value that is not zero, each
// of them with probability 1/2. Sums of sketches are compared with the dense mean; of all others it is
// checked that every rank decodes the same.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/init.h"
#include "dear/comm/buckets/encoded_bucket.h"
#include "dear/comm/buckets/layout.h"
#include "dear/comm/group/exchange.h"
#include "dear/schedule/policies/encoding.h"

namespace dear {
namespace {

struct Arguments {
  std::int64_t elements = 1 << 22;
  double density = 0.05;
  std::string compressions = "sketch,block=1 sketch,block=1,exact top-k:0.01 random-block:0.01";
  int rounds = 7;
  std::string backend;
  bool reproducible = false;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

std::span<float> floats(const View& view) {
  return {reinterpret_cast<float*>(view.buffer.data()), static_cast<std::size_t>(view.count)};
}

// This rank's gradient in a round: which elements any rank has is the same on all of them.
void generate(std::span<float> values, double density, int round, int rank) {
  std::mt19937_64 shared(static_cast<std::uint64_t>(round)),
      own(static_cast<std::uint64_t>(1000 * round + rank + 1));
  const auto threshold = static_cast<std::uint64_t>(density * 18446744073709551615.0);
  for (float& value : values) {
    value = 0;
    if (shared() > threshold) continue;
    const std::uint64_t drawn = own();
    if ((drawn & 1) != 0) value = static_cast<float>(static_cast<std::int64_t>(drawn) >> 40) / 1048576.0F;
  }
}

// The encodes and collectives of a bucket under policy dear, one after the other; seconds of the codec.
double carry(buckets::EncodedBucket& bucket, const Group& group, Scheme scheme) {
  double coded = 0;
  const auto code = [&](auto&& act) {
    const double begin = now_seconds();
    act();
    coded += now_seconds() - begin;
  };
  const auto send = [&](Collective collective, std::uint8_t part) {
    const Request request = bucket.request(collective, part);
    if (bucket.may_ask_more(collective, part))
      group
          .issue(request,
                 [&, asked = false]() mutable {
                   return std::exchange(asked, true) ? std::nullopt : bucket.more();
                 },
                 {})
          .wait();
    else
      group.issue(request).wait();
  };
  const auto halves = [&](std::uint8_t part) {
    send(Collective::reduce_scatter, part);
    send(Collective::all_gather, part);
  };
  code([&] { bucket.encode(0); });
  switch (scheme) {
    case Scheme::sketch:
      send(Collective::all_reduce, 0);
      code([&] { bucket.encode(1); });
      halves(1);
      break;
    case Scheme::top_k:
    case Scheme::block_top_k:
      send(Collective::all_gather, 0);
      break;
    default:
      halves(0);
      break;
  }
  code([&] { bucket.decode(); });
  return coded;
}

void verify(const Group& group, std::span<const float> dense, std::span<const float> sum,
            const Compression& how) {
  Digest digest;
  digest.add(std::string_view(reinterpret_cast<const char*>(sum.data()), sum.size_bytes()));
  agree(group, "mean of " + how.text(), digest.hex());
  if (how.scheme != Scheme::sketch) return;
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < dense.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(dense[i])));
    error = std::max(error, std::abs(static_cast<double>(dense[i]) - static_cast<double>(sum[i])));
  }
  if (error > 1e-5 * largest)
    throw Error(
        fmt::format("{} is wrong by {:.3g} where the largest value is {:.3g}", how.text(), error, largest));
}

void run(const Arguments& arguments) {
  Group group = init({.backend = arguments.backend, .reproducible = arguments.reproducible});
  const int ranks = group.size();
  const std::int64_t count = buckets::padded(arguments.elements, DType::f32, ranks);
  const auto view = [&] { return View{.buffer = group.allocate(count * 4), .count = count}; };
  const View dense = view(), gradients = view(), parameters = view();
  const double dense_bytes = buckets::dense_bytes(count * 4, ranks);
  if (group.rank() == 0)
    fmt::print(
        "{} elements, union density {}, {}\n\n| compression | dense | compressed | codec | ratio | MB sent | "
        "times "
        "less | pays below |\n|---|---|---|---|---|---|---|---|\n",
        count, arguments.density, group.description());
  std::istringstream names(arguments.compressions);
  for (std::string name; names >> name;) {
    Compression how = Compression::parse(name);
    how.dense_below = 0;
    buckets::EncodedBucket bucket(how, {{.range = {0, count}, .key = 1, .rows = 1}},
                                  {parameters, gradients, count}, group);
    std::vector<double> dense_seconds, seconds, coded;
    double sent = 0;
    for (int round = 0; round < arguments.rounds + 2; ++round) {
      generate(floats(dense), arguments.density, round, group.rank());
      std::copy(floats(dense).begin(), floats(dense).end(), floats(gradients).begin());
      group.barrier().wait();
      const double begin = now_seconds();
      group.reduce_scatter(dense, Reduction::average).wait();
      group.all_gather(dense).wait();
      const double between = now_seconds();
      const double before = bucket.counts().bytes;
      const double in_codec = carry(bucket, group, how.scheme);
      const double end = now_seconds();
      verify(group, floats(dense), floats(gradients), how);
      if (round < 2) continue;  // nothing is known of the gradients at first
      dense_seconds.push_back(between - begin);
      seconds.push_back(end - between);
      coded.push_back(in_codec);
      sent = bucket.counts().bytes - before;
    }
    if (group.rank() != 0) continue;
    const double codec = median(coded);
    fmt::print("| {} | {:.1f} ms | {:.1f} ms | {:.1f} ms | {:.2f} | {:.3f} | {:.1f} | {:.0f} Mb/s |\n", name,
               1e3 * median(dense_seconds), 1e3 * median(seconds), 1e3 * codec,
               median(dense_seconds) / median(seconds), sent / 1e6, dense_bytes / sent,
               8e-6 * (dense_bytes - sent) / codec);
  }
}

}  // namespace
}  // namespace dear

int main(int argc, char** argv) {
  CLI::App app("The mean of gradients over all ranks, dense and compressed, in turns");
  dear::Arguments arguments;
  app.add_option("--elements", arguments.elements, "of the gradient")->capture_default_str();
  app.add_option("--density", arguments.density, "of the union of all ranks")->capture_default_str();
  app.add_option("--compressions", arguments.compressions, "with spaces between them")->capture_default_str();
  app.add_option("--rounds", arguments.rounds, "that count")->capture_default_str();
  app.add_option("--backend", arguments.backend, "what carries collectives");
  app.add_flag("--reproducible", arguments.reproducible, "add up in the order of ranks");
  CLI11_PARSE(app, argc, argv);
  try {
    dear::run(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_compressed_sum: {}\n", error.what());
    return 1;
  }
}
