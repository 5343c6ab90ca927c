#include "dear/methods/pipeline/messages.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/schedule/codec/coordinate.h"
#include "dear/schedule/codec/kept.h"

namespace dear::methods::pipeline {
namespace {

void require_ratio(double value, std::string_view what) {
  if (!std::isfinite(value) || value < 1)
    throw ConfigError(
        fmt::format("the {} of a compression is {}: give a finite number, 1 or more", what, value));
}

// The ratio of one output on a link.
double worth(const Operator& output, double ratio) {
  const bool smaller = !is_integer(output.dtype) && sent_bytes(output, ratio) < output.output_bytes;
  return smaller ? ratio : 1;
}

}  // namespace

const std::vector<CompressionRuleInfo>& compression_rules() {
  static const std::vector<CompressionRuleInfo> kTable = {{CompressionRule::none, "none"},
                                                          {CompressionRule::top_k, "top-k"},
                                                          {CompressionRule::ada_top_k, "ada-top-k"}};
  return kTable;
}

std::string_view name_of(CompressionRule rule) {
  return compression_rules().at(static_cast<std::size_t>(rule)).name;
}

CompressionRule find_compression_rule(std::string_view name) {
  return find_named(compression_rules(), name, "compression of links").rule;
}

void check(const LinkCompression& compression) {
  require_ratio(compression.ratio, "ratio");
  require_ratio(compression.overhead, "overhead");
}

std::int64_t sent_elements(const Operator& output, double ratio) {
  const std::int64_t elements = output.output_bytes / size_of(output.dtype);
  return ratio > 1 ? codec::kept(elements, 1 / ratio) : elements;
}

std::int64_t sent_bytes(const Operator& output, double ratio) {
  return ratio > 1 ? sent_elements(output, ratio) * std::int64_t{sizeof(codec::Coordinate)}
                   : output.output_bytes;
}

std::vector<Message> compressed_messages(const OperatorDag& dag, const PairCluster& cluster,
                                         const std::vector<Stage>& stages,
                                         const LinkCompression& compression) {
  check(compression);
  if (compression.rule == CompressionRule::none) return {};
  std::map<std::pair<int, int>, double> busy;  // by link, one way
  double busiest = 0;
  const auto carry = [&](int from, int to, std::int64_t bytes) {
    double& seconds = busy[{from, to}];
    seconds += cluster.transfer_seconds(from, to, static_cast<double>(bytes));
    busiest = std::max(busiest, seconds);
  };
  for (std::size_t next = 1; next < stages.size(); ++next) {
    const auto cut = static_cast<std::size_t>(stages[next].operators.begin);
    carry(stages[next - 1].device, stages[next].device, dag.crossing_bytes(cut));
    carry(stages[next].device, stages[next - 1].device, dag.gradient_bytes(cut));
  }
  const auto ratio_of = [&](int from, int to) {
    if (compression.rule == CompressionRule::top_k || busiest <= 0) return compression.ratio;
    return std::max(1.0, compression.overhead * compression.ratio * busy.at({from, to}) / busiest);
  };
  std::vector<Message> messages;
  for (std::size_t next = 1; next < stages.size(); ++next) {
    const int before = stages[next - 1].device, behind = stages[next].device;
    if (before == behind) continue;
    for (const OperatorId output : dag.crossing(static_cast<std::size_t>(stages[next].operators.begin))) {
      const Message message{.from_stage = static_cast<int>(next) - 1,
                            .output = output,
                            .activation_ratio = worth(dag[output], ratio_of(before, behind)),
                            .gradient_ratio = worth(dag[output], ratio_of(behind, before))};
      if (message.activation_ratio > 1 || message.gradient_ratio > 1) messages.push_back(message);
    }
  }
  return messages;
}

}  // namespace dear::methods::pipeline
