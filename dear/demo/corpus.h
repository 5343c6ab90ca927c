#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dear::demo {

// A text as a sequence of characters, each a number: the vocabulary is the bytes that occur, in ascending
// order.
struct Corpus {
  std::string text;
  std::string vocabulary;             // vocabulary[i] is the byte of character number i
  std::vector<std::uint8_t> numbers;  // of the characters of the text
};

// A file, or a folder's regular files one after another, by name in byte order; symbolic links are followed,
// and a file that is there under several names counts once, under the first. ConfigError naming the path when
// it is missing or cannot be read, and when all of it has fewer than `least_characters`.
Corpus read_corpus(const std::string& path, std::int64_t least_characters);
Corpus make_corpus(std::string text);

// Where the samples of one step start in a text: `count` positions in [0, range), those numbered `first` and
// on in the step's global batch. They depend on nothing but the arguments, so ranks that take consecutive
// pieces of a batch see together what one rank sees that takes the whole of it.
struct BatchSlice {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};
std::vector<std::int64_t> sample_positions(const BatchSlice& slice, std::int64_t range);

// Safe to print: control characters but newline and tab, and bytes that are no valid UTF-8, each become '?'.
std::string printable(const std::string& text);

}  // namespace dear::demo
