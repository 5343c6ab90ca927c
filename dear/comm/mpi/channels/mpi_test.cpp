// Run by an mpirun on several ranks: mpi_test IMPLEMENTATION. Every rank runs every test, in the same order.
#include "dear/comm/mpi/channels/mpi.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::channels::mpi_test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string implementation;

Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }
std::string in_a_test() { return "wait in a test"; }

class MpiTest : public ::testing::Test {
 protected:
  MpiTest() : mpi(open_mpi({.implementation = implementation, .deadline = patience()})) {}

  [[nodiscard]] int rank() const { return mpi->rank(); }
  [[nodiscard]] int size() const { return mpi->size(); }

  void finish(std::vector<Transfer>& transfers) const {
    for (Transfer& transfer : transfers) {
      mpi->start(transfer);
    }
    while (!std::all_of(transfers.begin(), transfers.end(), [](const Transfer& one) { return one.done; })) {
      mpi->wait(in_a_test, patience());
    }
  }

  std::unique_ptr<Mpi> mpi;
};

std::byte content(int from, int to, std::int64_t i) {
  return static_cast<std::byte>((from * 31 + to * 17 + i * 7 + i / 251) % 256);
}

std::vector<std::byte> message(int from, int to, std::int64_t bytes) {
  std::vector<std::byte> text(static_cast<std::size_t>(bytes));
  for (std::int64_t i = 0; i < bytes; ++i) {
    text[static_cast<std::size_t>(i)] = content(from, to, i);
  }
  return text;
}

TEST_F(MpiTest, KnowsItself) {
  EXPECT_THAT(mpi->description(), AnyOf(HasSubstr("Open MPI"), HasSubstr("MPICH")));
  EXPECT_EQ(mpi->hosts(), std::vector<int>(static_cast<std::size_t>(size()), 0));
}

TEST_F(MpiTest, EveryLengthArrivesFromEveryRank) {
  for (const std::int64_t bytes : {0, 1, 63, 4096, 65'537, 3'000'001}) {
    std::vector<std::vector<std::byte>> out;
    std::vector<std::vector<std::byte>> in(static_cast<std::size_t>(size()));
    for (int peer = 0; peer < size(); ++peer) {
      out.push_back(message(rank(), peer, bytes));
      in[static_cast<std::size_t>(peer)].resize(static_cast<std::size_t>(bytes));
    }
    std::vector<Transfer> transfers;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) {
        const auto at = static_cast<std::size_t>(peer);
        transfers.push_back({Transfer::Direction::receive, peer, 3, in[at].data(), bytes});
        transfers.push_back({Transfer::Direction::send, peer, 3, out[at].data(), bytes});
      }
    }
    finish(transfers);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) {
        EXPECT_TRUE(in[static_cast<std::size_t>(peer)] == message(peer, rank(), bytes)) << bytes << " bytes";
      }
    }
  }
}

// Of one tag in the order of sending, of two tags as they are asked for.
TEST_F(MpiTest, MessagesKeepTheirOrderAndTags) {
  constexpr int kMany = 200;
  if (size() == 1) {
    return;
  }
  const int to = (rank() + 1) % size();
  const int from = (rank() + size() - 1) % size();
  std::vector<int> out(2 * kMany), in(2 * kMany, -1);
  std::iota(out.begin(), out.end(), 1000 * rank());
  std::vector<Transfer> transfers;
  for (int i = 0; i < 2 * kMany; ++i) {
    const Tag tag = i < kMany ? 1 : kMostTag;
    transfers.push_back({Transfer::Direction::send, to, tag,
                         reinterpret_cast<std::byte*>(&out[static_cast<std::size_t>(i)]), 4});
  }
  for (int i = 0; i < 2 * kMany; ++i) {
    const int at = (i + kMany) % (2 * kMany);
    const Tag tag = at < kMany ? 1 : kMostTag;
    transfers.push_back({Transfer::Direction::receive, from, tag,
                         reinterpret_cast<std::byte*>(&in[static_cast<std::size_t>(at)]), 4});
  }
  finish(transfers);
  std::vector<int> expected(2 * kMany);
  std::iota(expected.begin(), expected.end(), 1000 * from);
  EXPECT_EQ(in, expected);
}

TEST_F(MpiTest, CarriesMpisOwnCollectives) {
  constexpr std::int64_t kBlock = 1001;
  const std::int64_t count = kBlock * size();
  const auto block_of = [&](int rank) { return static_cast<std::size_t>(kBlock * rank); };
  for (const bool blocking : {false, true}) {
    const auto carry = [&](const MpiCollective& collective) {
      blocking ? mpi->run_blocking(collective) : mpi->run(collective, in_a_test, patience());
    };
    std::vector<float> data(static_cast<std::size_t>(count), static_cast<float>(rank() + 1));
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    const auto sum = static_cast<float>(size() * (size() + 1) / 2);
    carry({.collective = Collective::reduce_scatter, .data = bytes, .count = count});
    for (std::size_t i = 0; i < kBlock; ++i) {
      ASSERT_EQ(data[block_of(rank()) + i], sum);
    }
    carry({.collective = Collective::all_gather, .data = bytes, .count = count});
    EXPECT_EQ(data, std::vector<float>(static_cast<std::size_t>(count), sum));
    carry({.collective = Collective::all_reduce, .data = bytes, .count = count, .reduction = Reduction::max});
    EXPECT_EQ(data, std::vector<float>(static_cast<std::size_t>(count), sum));

    std::vector<std::int64_t> bits(static_cast<std::size_t>(count), std::int64_t{1} << rank());
    carry({.collective = Collective::all_reduce,
           .data = reinterpret_cast<std::byte*>(bits.data()),
           .count = count,
           .dtype = DType::i64,
           .reduction = Reduction::bitwise_or});
    EXPECT_EQ(bits,
              std::vector<std::int64_t>(static_cast<std::size_t>(count), (std::int64_t{1} << size()) - 1));

    std::vector<std::int64_t> numbers(static_cast<std::size_t>(count), rank());
    std::vector<std::int64_t> received(numbers.size(), -1);
    carry({.collective = Collective::all_to_all,
           .data = reinterpret_cast<std::byte*>(numbers.data()),
           .output = reinterpret_cast<std::byte*>(received.data()),
           .count = count,
           .dtype = DType::i64});
    for (int peer = 0; peer < size(); ++peer) {
      EXPECT_EQ(received[block_of(peer)], peer);
    }
    carry({.collective = Collective::broadcast,
           .data = reinterpret_cast<std::byte*>(numbers.data()),
           .count = count,
           .dtype = DType::i64,
           .root = size() - 1});
    EXPECT_EQ(numbers, std::vector<std::int64_t>(static_cast<std::size_t>(count), size() - 1));
    carry({.collective = Collective::barrier});
  }
}

TEST_F(MpiTest, SaysWhatMpiDoesNotHave) {
  EXPECT_FALSE(mpi->supports({.collective = Collective::all_reduce, .count = 8, .dtype = DType::f16}));
  EXPECT_FALSE(
      mpi->supports({.collective = Collective::reduce_scatter, .count = 8, .reduction = Reduction::average}));
  EXPECT_FALSE(
      mpi->supports({.collective = Collective::all_reduce, .count = 8, .reduction = Reduction::bitwise_or}));
  EXPECT_TRUE(mpi->supports({.collective = Collective::all_gather, .count = 8, .dtype = DType::bf16}));
  EXPECT_THROW(mpi->run({.collective = Collective::all_reduce, .count = 8, .dtype = DType::f16}, in_a_test,
                        patience()),
               ConfigError);
  mpi->run_blocking({.collective = Collective::barrier});
}

TEST_F(MpiTest, OneObjectUsesItAtATime) {
  EXPECT_THROW(open_mpi({.implementation = implementation, .deadline = patience()}), ConfigError);
  const std::string other = implementation == "openmpi" ? "mpich" : "openmpi";
  EXPECT_THROW(open_mpi({.implementation = other, .deadline = patience()}), ConfigError);
  EXPECT_THROW(open_mpi({.implementation = "none", .deadline = patience()}), ConfigError);
  mpi->run_blocking({.collective = Collective::barrier});
}

}  // namespace
}  // namespace dear::channels::mpi_test

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: mpi_test IMPLEMENTATION\n");
    return 2;
  }
  dear::channels::mpi_test::implementation = argv[1];
  return RUN_ALL_TESTS();
}
