#include "dear/systems/train_command/corpus.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::train_command::corpus_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class CorpusFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "corpus-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }

  fs::path folder_;
};

TEST_F(CorpusFiles, AFileIsItsBytes) {
  const std::string bytes("a\0\xff\r\n b", 7);
  const Corpus corpus = read_corpus(write("file", bytes).string(), 1);
  EXPECT_EQ(corpus.text, bytes);
}

TEST_F(CorpusFiles, AFolderIsItsFilesInByteOrderOfTheirNames) {
  write("b", "second ");
  write("a", "first ");
  write("B", "zeroth ");
  write("\xc3\xa4", "last");
  EXPECT_EQ(read_corpus(folder_.string(), 1).text, "zeroth first second last");
}

TEST_F(CorpusFiles, LinksAreFollowedAndAFileCountsOnce) {
  write("b-2", "two ");
  write("c", "three");
  fs::create_symlink("b-2", folder_ / "a");
  fs::create_symlink("c", folder_ / "d");
  fs::create_hard_link(folder_ / "c", folder_ / "e");
  EXPECT_EQ(read_corpus(folder_.string(), 1).text, "two three");
}

TEST_F(CorpusFiles, WhatIsNoFileIsLeftOut) {
  write("text", "text");
  fs::create_directory(folder_ / "folder");
  std::ofstream(folder_ / "folder" / "inner") << "inner";
  fs::create_symlink("nowhere", folder_ / "dangling");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_corpus(folder_.string(), 1).text, "text");
}

TEST_F(CorpusFiles, MissingDataIsNamed) {
  const std::string path = (folder_ / "absent").string();
  EXPECT_THAT(
      [&] { read_corpus(path, 1); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("--data"), HasSubstr(path), HasSubstr("No such file"))));
}

TEST_F(CorpusFiles, AnEmptyFolderIsRefused) {
  EXPECT_THAT([&] { read_corpus(folder_.string(), 1); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr(folder_.string()), HasSubstr("no regular files"))));
}

TEST_F(CorpusFiles, APipeIsRefusedWithoutWaitingForIt) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT([&] { read_corpus(pipe.string(), 1); }, ThrowsMessage<ConfigError>(HasSubstr("neither")));
}

TEST_F(CorpusFiles, TooFewCharactersAreRefusedWithBothNumbers) {
  const std::string path = write("tiny", "12345").string();
  EXPECT_THAT([&] { read_corpus(path, 6); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("5 characters"), HasSubstr("at least 6"))));
  EXPECT_EQ(read_corpus(path, 5).text, "12345");
  EXPECT_THROW(read_corpus(write("empty", "").string(), 3), ConfigError);
}

TEST(Corpus, TheVocabularyIsTheBytesThatOccurInAscendingOrder) {
  const Corpus corpus = make_corpus(
      "ba\xff"
      "ab");
  EXPECT_EQ(corpus.vocabulary, "ab\xff");
  EXPECT_THAT(corpus.numbers, ElementsAre(1, 0, 2, 0, 1));
}

TEST(Corpus, All256BytesCanOccur) {
  std::string bytes;
  for (int i = 255; i >= 0; --i) {
    bytes.push_back(static_cast<char>(i));
  }
  const Corpus corpus = make_corpus(bytes);
  ASSERT_EQ(corpus.vocabulary.size(), 256U);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(corpus.vocabulary[corpus.numbers[i]], bytes[i]);
  }
}

TEST(SamplePositions, RanksTogetherSeeWhatOneSees) {
  constexpr std::int64_t kRange = 1000;
  for (const int ranks : {1, 2, 3, 4, 6}) {
    for (const std::int64_t step : {0, 1, 17}) {
      const std::int64_t batch = 12 / ranks;
      std::vector<std::int64_t> together;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto part =
            sample_positions({.seed = 7, .step = step, .first = rank * batch, .count = batch}, kRange);
        together.insert(together.end(), part.begin(), part.end());
      }
      EXPECT_EQ(together, sample_positions({.seed = 7, .step = step, .first = 0, .count = 12}, kRange))
          << ranks;
    }
  }
}

TEST(SamplePositions, FillTheirRangeAndNoMore) {
  const auto positions = sample_positions({.seed = 1, .step = 0, .first = 0, .count = 1000}, 10);
  const std::set<std::int64_t> seen(positions.begin(), positions.end());
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 9);
  EXPECT_EQ(seen.size(), 10U);
  // Each of the ten about a hundred times.
  for (const std::int64_t position : seen) {
    EXPECT_NEAR(static_cast<double>(std::count(positions.begin(), positions.end(), position)), 100, 50);
  }
}

TEST(SamplePositions, DependOnSeedAndStep) {
  const auto draw = [](std::uint64_t seed, std::int64_t step) {
    return sample_positions({.seed = seed, .step = step, .first = 0, .count = 8}, 1'000'000);
  };
  EXPECT_EQ(draw(1, 2), draw(1, 2));
  EXPECT_NE(draw(1, 2), draw(1, 3));
  EXPECT_NE(draw(1, 2), draw(2, 2));
  EXPECT_NE(draw(1, 2), draw(2, 1));
}

TEST(Printable, TextStaysAsItIs) {
  const std::string text = "a\tb\nc \xc3\xa4 \xe2\x82\xac \xf0\x9f\x8d\x92";
  EXPECT_EQ(printable(text), text);
}

TEST(Printable, WhatCouldSteerATerminalIsReplaced) {
  EXPECT_EQ(printable("\x1b[2J\r\x7f"), "?[2J??");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a?b");
  EXPECT_EQ(printable("\xc2\x9b"), "?");
}

TEST(Printable, InvalidUtf8IsReplacedByteByByte) {
  EXPECT_EQ(printable("\xe2\x82"), "??");            // cut short
  EXPECT_EQ(printable("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(printable("\xe0\x80\xaf"), "???");       // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????");  // past the last code point
  EXPECT_EQ(printable("\xff"
                      "a\x80"),
            "?a?");
}

}  // namespace
}  // namespace dear::train_command::corpus_test
