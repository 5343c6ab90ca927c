#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dear/base/vocabulary/range.h"

// A language that is drawn, and a network that guesses its next character.
namespace dear::studies::rounds {

// Words of letters that are as frequent as Zipf's law says, one after the other with a blank between; half of
// the words are one of the few that like to follow the one before.
struct LanguageShape {
  int words = 200;
  int least_letters = 2, most_letters = 7;
  int followers = 3;  // of a word
};

inline constexpr int kCharacters = 27;  // the blank is 0
using Text = std::vector<std::uint8_t>;

// The text of one of several sites, so many characters, from a language that all share, or, where sites are
// `apart`, of which each prefers its own words: those whose number leaves the rest `site` when divided by
// `sites` are ten times as frequent there. `site` -1 draws from all sites' words in turn, as a test does.
// The same for the same seed.
struct TextOf {
  std::uint64_t seed = 1;
  int site = -1, sites = 2;
  bool apart = false;
};
Text draw_text(const LanguageShape& shape, const TextOf& of, std::size_t characters);

// Embeddings of the last characters, a rectified layer, and the logits of the next character (Bengio et al.
// 2003, A neural probabilistic language model, JMLR 3).
struct CharacterShape {
  int context = 6;
  int embedding = 10;
  int hidden = 64;

  // In one flat vector: embeddings, weights and bias of the layer, weights and bias of the logits.
  [[nodiscard]] std::array<Range, 5> tensors() const;
  [[nodiscard]] std::int64_t parameters() const { return tensors().back().end; }
};

// No parameters of its own, but room for its work. One thread at a time.
class CharacterModel {
 public:
  explicit CharacterModel(const CharacterShape& shape) : shape_(shape), tensors_(shape.tensors()) {}

  [[nodiscard]] std::vector<float> initial_parameters(std::uint64_t seed) const;
  // The mean cross entropy, in nats, of the characters of `text` at `places`, each at least `context` from
  // its beginning; at least one.
  double loss(std::span<const float> parameters, const Text& text, std::span<const std::size_t> places);
  // Likewise, and overwrites the gradient.
  double learn(std::span<const float> parameters, const Text& text, std::span<const std::size_t> places,
               std::span<float> gradient);

 private:
  CharacterShape shape_;
  std::array<Range, 5> tensors_;
  std::vector<float> inputs_, hidden_, logits_, of_hidden_, of_inputs_, transposed_;
};

}  // namespace dear::studies::rounds
