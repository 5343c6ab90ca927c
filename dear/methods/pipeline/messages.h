#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dear/methods/pipeline/operators.h"
#include "dear/methods/pipeline/stages.h"
#include "dear/platform/cluster/pair_cluster.h"

// This header says what travels between stages, and how much of it: the coordinates of largest magnitude
// (top_k.h of dear/schedule/codec), of activations and of the gradients that come back.
namespace dear::methods::pipeline {

enum class CompressionRule : std::uint8_t {
  none,
  top_k,     // the same ratio on every link
  ada_top_k  // AdaTopK: the slower a link, the larger its ratio
};
struct CompressionRuleInfo {
  CompressionRule rule;
  std::string_view name;
};
const std::vector<CompressionRuleInfo>& compression_rules();
std::string_view name_of(CompressionRule rule);                // "none", "top-k", "ada-top-k"
CompressionRule find_compression_rule(std::string_view name);  // ConfigError that lists them

// A ratio is of elements that there are to those that travel, as FusionLLM writes it: the inverse of
// Compression::ratio.
struct LinkCompression {
  CompressionRule rule = CompressionRule::none;
  double ratio = 100;
  // With ada-top-k r_e = max(1, overhead x ratio x R_e / R_max), where R_e is for how long the dense bytes of
  // a micro-batch keep link e busy. 2 are the bytes of a coordinate, index and value, over those of a value
  // in fp32, so that the slowest link carries 1 / ratio of its bytes; with indices of 8 bytes it would be 3.
  double overhead = 2;
};
// ConfigError for a ratio or overhead that is below 1 or not finite.
void check(const LinkCompression& compression);

// One output over the cut behind stage `from_stage`, and its gradient back. 1: dense.
struct Message {
  int from_stage = 0;
  OperatorId output = 0;
  double activation_ratio = 1;
  double gradient_ratio = 1;
  friend bool operator==(const Message&, const Message&) = default;
};

// Elements and bytes of an output that travel at a ratio: all of them at 1, else an index and a value in fp32
// for each of max(1, floor(elements / ratio)) elements.
std::int64_t sent_elements(const Operator& output, double ratio);
std::int64_t sent_bytes(const Operator& output, double ratio);

// Every message of these stages whose ratio is not 1 in both directions, by stage and output. Integers, and
// what would be no smaller, stay dense. check()s.
std::vector<Message> compressed_messages(const OperatorDag& dag, const PairCluster& cluster,
                                         const std::vector<Stage>& stages,
                                         const LinkCompression& compression);

}  // namespace dear::methods::pipeline
