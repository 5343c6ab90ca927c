#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dear {

// Ways to send less of a gradient. Sources: sparse communication, Eghlidi and Jaggi 2020, arXiv 2009.09271;
// PowerSGD, Vogels et al. 2019, arXiv 1905.13727; the index of sketches, Li et al. 2024, arXiv 2402.07529.
enum class Scheme : std::uint8_t {
  random_k,      // coordinates that are drawn, the same on every rank
  random_block,  // one block of neighbouring coordinates at a place that is drawn
  top_k,         // the coordinates of largest magnitude, each rank its own
  block_top_k,   // the block of largest norm, each rank its own
  fp16,
  bf16,
  low_rank,  // two factors of each matrix (PowerSGD)
  sketch     // all that is not zero, lossless: the index of homomorphic compression, values by key
};
std::string_view name_of(Scheme scheme);  // "random-k"

// A Scope names the elements that a ratio is of: each tensor, all tensors of a bucket, or the whole model,
// which then travels in one bucket.
enum class Scope : std::uint8_t { tensor, bucket, model };

// How the sum of sparse gradients travels: behind an index by key (schedule/codec/key_index.h), or as a
// sketch (schedule/codec/sketch.h).
struct SketchSpec {
  enum class Index : std::uint8_t { automatic, bitmap, bloom };
  // Rows of a sketch for each key that the union of the ranks is expected to have. 0: values travel by key.
  double room = 1.3;
  std::int64_t block = 0;  // consecutive elements that share one key; 0: chosen from the first gradients
  Index index = Index::automatic;
  bool exact = false;          // sums in fixed point (int64), the same for any order; else in fp32
  double most_density = 0.25;  // of the union: above it the bucket travels dense
  friend bool operator==(const SketchSpec&, const SketchSpec&) = default;
};

// A Compression describes how gradients are encoded so that less of them travels, as a user asks for it. A
// value.
//
// In every step each rank computes, with g its own gradient, and x the parameters:
//   g += weight_decay x;  u = momentum u + g (g + momentum u with nesterov);  m = u + e;  c = encoded(m)
// where u is g without momentum, and e, the residual, is 0 without feedback. The mean of all ranks' c is what
// the optimiser gets as the gradient. Then e = m - c with feedback. With momentum correction and masking (Lin
// et al. 2018, arXiv 1712.01887) u, too, is zeroed where c took coordinates. Momentum and weight decay of the
// optimiser itself act on the mean, after the communication.
struct Compression {
  Scheme scheme = Scheme::top_k;
  double ratio = 0.01;  // of the elements that travel, above 0 and at most 1; at least one
  int rank = 4;         // of low_rank's factors
  Scope scope = Scope::tensor;
  bool own_indices = false;  // random schemes: each rank draws its own, and indices are gathered
  bool feedback = false;     // error feedback: what did not travel is added to the next gradient
  bool unbiased = false;     // random schemes: scaled by 1/ratio; not with feedback
  double momentum = 0;       // before the communication, on each rank
  bool nesterov = false;
  bool correction = false;          // momentum correction and masking: with momentum and feedback
  double weight_decay = 0;          // before the communication
  std::int64_t warm_up_steps = 0;   // in which the ratio falls from 1/4 to its value, exponentially
  std::int64_t dense_below = 1024;  // tensors of fewer elements travel dense
  std::vector<std::string> dense_names = {"*bias", "*norm*"};  // so do those whose names match a pattern
  std::uint64_t seed = 1;                                      // of what is drawn: the same on every rank
  SketchSpec sketch{.room = 0};                                // training sends values by key

  // Reads it as a user writes it: a scheme, its ratio (or rank) after a colon, and options after commas, in
  // any order:
  //   top-k:0.01,ef        random-block:0.01,ef,momentum=0.9,correction,warmup=200     fp16    low-rank:4,ef
  //   random-k:0.1,own,scope=bucket,unbiased,decay=1e-4,momentum=0.9,nesterov,seed=7
  //   low-rank:2,ef,dense-below=4096,dense=*bias;*norm*
  //   sketch,block=16,index=bloom,exact,most-density=0.3
  // ConfigError, naming the part at fault and what there is, for any other text, for an option that the
  // scheme does not have, twice the same one, and for what validate() refuses.
  static Compression parse(std::string_view text);
  // The text from which parse() makes this value again: it leaves out options that have their
  // default.
  [[nodiscard]] std::string text() const;

  // The ratio in this step, counted from 0: see warm_up_steps. The same bits on every machine, so that all
  // ranks send equally many elements.
  [[nodiscard]] double ratio_at(std::int64_t step) const;
  // Whether each rank sends something of its own, which the others gather; else payloads are added up.
  [[nodiscard]] bool gathers() const;
  // Whether a tensor of this name and size travels dense. A pattern is of the whole name: * stands for any
  // characters, ? for one.
  [[nodiscard]] bool leaves_dense(std::string_view name, std::int64_t elements) const;

  friend bool operator==(const Compression&, const Compression&) = default;
};

// ConfigError, naming the part at fault, its value and what there is, for a value out of its range, for one
// that the scheme does not use and that is not the default, and for two that exclude each other. What parse()
// returns is valid.
void validate(const Compression& compression);

// SchemeInfo describes one scheme for --help, documentation and messages.
struct SchemeInfo {
  Scheme scheme;
  std::string_view name;
  std::string_view amount;  // what follows the name after a colon, "RATIO" or "RANK"; empty for nothing
  std::string_view summary;
  std::string_view source;
};
std::span<const SchemeInfo> schemes();  // in the order of Scheme

struct CompressionOption {
  std::string_view name;
  std::string_view value;  // what follows the name after "=", as "STEPS"; empty where nothing does
  std::string_view summary;
  std::vector<std::string_view> schemes;  // that have it
};
std::vector<CompressionOption> compression_options();

// How a text for Compression::parse() is built, in one line.
std::string compression_grammar();

}  // namespace dear
