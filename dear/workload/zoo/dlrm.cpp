#include <fmt/format.h>

#include "dear/workload/zoo/builder.h"
#include "dear/workload/zoo/families.h"

// Naumov et al. 2019, arXiv 1906.00091, in the shape of the benchmark on Criteo's terabyte of clicks: 13
// numbers and 26 categories a sample. The part that data-parallel ranks share: embedding tables lie with the
// ranks that own them, their gradients never meet, and how rows travel is not part of it.
namespace dear::zoo {
namespace {

constexpr std::int64_t kDlrmNumbers = 13;
constexpr std::int64_t kDlrmCategories = 26;
constexpr std::int64_t kEmbeddingWidth = 128;  // of an embedding

std::int64_t perceptron(Builder& net, const std::string& name, std::int64_t in,
                        const std::vector<std::int64_t>& widths) {
  for (std::size_t layer = 0; layer < widths.size(); ++layer) {
    net.linear(fmt::format("{}.{}", name, layer), 1, in, widths[layer]);
    net.relu(widths[layer]);
    in = widths[layer];
  }
  return in;
}

}  // namespace

Architecture dlrm(std::int64_t scale) {
  Builder net;
  perceptron(net, "bottom", kDlrmNumbers, {512 * scale, 256 * scale, kEmbeddingWidth});
  // Every pair of the embeddings and the numbers' vector, beside that vector.
  constexpr std::int64_t kVectors = kDlrmCategories + 1;
  net.concatenate(kVectors * kEmbeddingWidth);
  perceptron(net, "top", kVectors * (kVectors - 1) / 2 + kEmbeddingWidth,
             {1024 * scale, 1024 * scale, 512 * scale, 256 * scale, 1});
  return std::move(net).take();
}

}  // namespace dear::zoo
