#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dear::train_command {

// A text as a sequence of characters, each a number: the vocabulary is the bytes that occur, in ascending
// order.
struct Corpus {
  std::string text;
  std::string vocabulary;             // vocabulary[i] is the byte of character number i
  std::vector<std::uint8_t> numbers;  // of the characters of the text
};

// Reads a file, or the regular files of a folder one after another, by name in byte order. Symbolic links are
// followed; a file with several names counts once, under the first. ConfigError naming the path when it
// cannot be read, and when there are fewer than `least_characters`.
Corpus read_corpus(const std::string& path, std::int64_t least_characters);
Corpus make_corpus(std::string text);

// A part of a step's global batch: the `count` samples from number `first` on.
struct BatchSlice {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};
// The places in a text where these samples start: `count` positions in [0, range). They depend on nothing but
// the arguments, so ranks that take consecutive parts of a batch train on the same samples as one rank that
// takes all.
std::vector<std::int64_t> sample_positions(const BatchSlice& slice, std::int64_t range);

// The text with '?' for each control character but newline and tab, and for each byte that is no valid UTF-8:
// safe to print.
std::string printable(const std::string& text);

}  // namespace dear::train_command
