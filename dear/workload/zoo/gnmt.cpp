#include <fmt/format.h>

#include "dear/workload/zoo/builder.h"
#include "dear/workload/zoo/families.h"

// Wu et al. 2016, arXiv 1609.08144: eight recurrent layers of width 1024 on each side, the first of the
// encoder in both directions, residual streams from the third on, and the decoder's attention beside the
// input of each of its layers. A recurrent layer is the matrix product of its four gates, as in Hochreiter
// and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735, over the positions of both sides as if they had come
// at once: how long it takes to wait for the position before is not counted.
namespace dear::zoo {
namespace {

constexpr std::int64_t kGnmtWidth = 1024;
constexpr std::int64_t kGnmtLayers = 8;
constexpr std::int64_t kGnmtVocabulary = 32'000;

void lstm(Builder& net, const std::string& name, std::int64_t length, std::int64_t in) {
  net.linear(name, length, in + kGnmtWidth, 4 * kGnmtWidth);
  net.gate(length * 2 * kGnmtWidth);  // sigmoids and tangents of the gates
  net.add(length * kGnmtWidth);
}

}  // namespace

Architecture gnmt(std::int64_t length) {
  Builder net;
  net.embedding("encoder.embedding", length, kGnmtVocabulary, kGnmtWidth);
  lstm(net, "encoder.0.forward", length, kGnmtWidth);
  lstm(net, "encoder.0.backward", length, kGnmtWidth);
  for (std::int64_t layer = 1; layer < kGnmtLayers; ++layer) {
    lstm(net, fmt::format("encoder.{}", layer), length, layer == 1 ? 2 * kGnmtWidth : kGnmtWidth);
  }
  net.embedding("decoder.embedding", length, kGnmtVocabulary, kGnmtWidth);
  net.linear("attention.query", length, kGnmtWidth, kGnmtWidth, {.bias = false});
  net.linear("attention.key", length, kGnmtWidth, kGnmtWidth, {.bias = false});
  net.attention({.length = length, .heads = 1, .head_width = kGnmtWidth});
  for (std::int64_t layer = 0; layer < kGnmtLayers; ++layer) {
    lstm(net, fmt::format("decoder.{}", layer), length, 2 * kGnmtWidth);
  }
  net.linear("classifier", length, kGnmtWidth, kGnmtVocabulary);
  net.cross_entropy(length * kGnmtVocabulary);
  return std::move(net).take();
}

}  // namespace dear::zoo
