// Shards: which rank reads what of them, and which of a folder are whole.

#include "dear/base/archive/shard_set.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/archive/zip_writer.h"
#include "dear/base/vocabulary/error.h"

namespace dear::archive::shard_set_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TensorRecord record(const std::string& key, std::int64_t elements) {
  return {.key = key,
          .storage = "ByteStorage",
          .storage_elements = elements,
          .offset = 0,
          .sizes = {elements},
          .strides = {1}};
}

// A list of one pair. Compilers differ in what a list in braces around one list is.
Value::List one_piece(std::int64_t begin, const TensorRecord& record) {
  Value::List pieces;
  pieces.emplace_back(Value::List{begin, record});
  return pieces;
}

class ShardSets : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "dear-shards-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Of three ranks: "large" has 12000 bytes, of which rank r has 4000 from 4000 r on; "small" has 100, of
  // rank 1.
  [[nodiscard]] std::vector<std::string> write(const std::string& word,
                                               std::int64_t begin_of_last = 8000) const {
    std::vector<std::string> paths;
    for (int rank = 0; rank < 3; ++rank) {
      Value pieces{Value::Dict()}, file;
      const std::int64_t begin = rank == 2 ? begin_of_last : 4000 * rank;
      ZipWriter writer(paths.emplace_back((folder_ / shard_name(word, rank, 3)).string()));
      writer.add("data/0", std::string(4000, static_cast<char>('a' + rank)));
      writer.add("data/1", std::string(100, 's'));
      pieces.set("large", one_piece(begin, record("0", 4000)));
      if (rank == 1) pieces.set("small", one_piece(0, record("1", 100)));
      file.set("random", record("1", 100));
      file.set("pieces", std::move(pieces));
      if (rank == 0) writer.add(kManifest, pickle(Value("all")));
      writer.add("data.pkl", pickle(file));
      writer.finish();
    }
    return paths;
  }
  // Of one rank, with this list of pieces and this record "0".
  [[nodiscard]] std::string write_one(Value::List list, const std::string& bytes) const {
    std::string path = (folder_ / shard_name("00000001", 0, 1)).string();
    Value pieces{Value::Dict()}, file;
    pieces.set("large", std::move(list));
    file.set("pieces", std::move(pieces));
    ZipWriter writer(path);
    writer.add("data/0", bytes);
    writer.add(kManifest, pickle(Value("all")));
    writer.add("data.pkl", pickle(file));
    writer.finish();
    return path;
  }
  fs::path folder_;
};

TEST_F(ShardSets, AreReadOnceByAllRanksTogether) {
  const std::vector<std::string> paths = write("00000001");
  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<int> readers(3, 0);
    for (int rank = 0; rank < ranks; ++rank) {
      ShardSet set(paths, rank, ranks);
      EXPECT_EQ(set.saved_ranks(), 3);
      EXPECT_EQ(unpickle(set.manifest(), ""), Value("all"));
      ASSERT_EQ(set.pieces_of("large").size(), 3U);
      for (const ShardSet::Piece& piece : set.pieces_of("large")) {
        EXPECT_EQ(piece.begin, static_cast<std::int64_t>(4000 * piece.shard));
        if (!piece.memory) continue;
        ++readers[piece.shard];
        EXPECT_EQ(static_cast<char>(piece.memory[3999]), static_cast<char>('a' + piece.shard));
        if (ranks == 3) {
          EXPECT_EQ(static_cast<int>(piece.shard), rank);
        }
      }
      EXPECT_NE(set.pieces_of("small").front().memory, nullptr);
      EXPECT_EQ(set.take_own_memory().size(), ranks == 3 ? 1U : 0U);
      set.forget("large");
      EXPECT_TRUE(set.pieces_of("large").empty());
    }
    EXPECT_THAT(readers, ElementsAre(1, 1, 1));
  }
}

TEST_F(ShardSets, ThatLackElementsOrHaveThemTwiceAreRefused) {
  for (const std::int64_t begin : {7999, 8001})
    EXPECT_THAT([&] { ShardSet(write("00000001", begin), 0, 3); },
                ThrowsMessage<ConfigError>(HasSubstr("not whole")));
  EXPECT_THAT([&] { ShardSet(write("00000001", -1), 0, 3); },
              ThrowsMessage<ConfigError>(HasSubstr("damaged")));
}

// A file may name a record of many bytes in many pieces.
TEST_F(ShardSets, HaveEachRecordInMemoryOnce) {
  Value::List many;
  for (std::int64_t begin = 0; begin < 100; ++begin) many.emplace_back(Value::List{begin, record("0", 1)});
  const ShardSet set({write_one(std::move(many), std::string(10'000, 'a'))}, 0, 1);
  for (const ShardSet::Piece& piece : set.pieces_of("large"))
    EXPECT_EQ(piece.memory, set.pieces_of("large").front().memory);
}

TEST_F(ShardSets, WithoutAByteAreReadByAnyNumberOfRanks) {
  EXPECT_NO_THROW(ShardSet({write_one(one_piece(0, record("0", 1)), "")}, 0, 2));
}

TEST_F(ShardSets, AreRefusedByTheRankThatReadsTheDamage) {
  const std::vector<std::string> paths = write("00000001");
  std::fstream(paths[1], std::ios::in | std::ios::out | std::ios::binary).seekp(1000).write("damage", 6);
  EXPECT_NO_THROW(ShardSet(paths, 0, 3));
  EXPECT_THAT([&] { ShardSet(paths, 1, 3); }, ThrowsMessage<ConfigError>(HasSubstr("'data/0'")));
}

TEST_F(ShardSets, OfAFolderAreThoseThatAreWholeTheNewestFirst) {
  EXPECT_THAT([&] { static_cast<void>(shards_in(folder_.string())); },
              ThrowsMessage<ConfigError>(HasSubstr("has no shards")));
  EXPECT_TRUE(is_cut_short(folder_.string()));
  const std::string old = write("0000000a").front(), now = write("00000001").front();
  const std::string lost = write("00000002").back();
  fs::remove(lost);
  fs::last_write_time(old, fs::last_write_time(now) - std::chrono::seconds(5));
  EXPECT_FALSE(is_cut_short(folder_.string()));
  const auto found = shards_in(folder_.string());
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].front(), fs::path(now).filename());
  EXPECT_EQ(found[1].front(), fs::path(old).filename());
  remove_other_shards(folder_.string(), found[0].front());
  EXPECT_EQ(shards_in(folder_.string()).size(), 1U);
  EXPECT_FALSE(fs::exists(old));
  fs::remove(now);
  EXPECT_THAT([&] { static_cast<void>(shards_in(folder_.string())); },
              ThrowsMessage<ConfigError>(HasSubstr("00000001-00000-of-00003.pt is not there")));
  EXPECT_TRUE(is_cut_short(folder_.string()));
  std::ofstream(folder_ / "of another program");
  EXPECT_FALSE(is_cut_short(folder_.string()));
}

}  // namespace
}  // namespace dear::archive::shard_set_test
