#include "dear/comm/mpi/start_up_exchange.h"

#include <cstdint>
#include <cstring>
#include <memory>

#include "dear/comm/message_programs/program_backend.h"
#include "dear/comm/mpi/borrowed_channels.h"

namespace dear::backends {
namespace {

std::unique_ptr<Backend> programs_on(channels::Mpi& mpi) {
  return message_programs::make_program_backend(std::make_unique<BorrowedChannels>(mpi));
}

}  // namespace

std::string text_of_rank_0(channels::Mpi& mpi, const std::string& text, Deadline deadline) {
  const std::unique_ptr<Backend> talk = programs_on(mpi);
  const Buffer length = talk->allocate(sizeof(std::int64_t), deadline);
  auto bytes = static_cast<std::int64_t>(text.size());
  std::memcpy(length.data(), &bytes, sizeof bytes);
  const auto broadcast = [&](const Buffer& buffer, std::int64_t count) {
    talk->run(
        {.collective = Collective::broadcast, .view = {.buffer = buffer, .count = count, .dtype = DType::u8}},
        deadline);
  };
  broadcast(length, sizeof bytes);
  std::memcpy(&bytes, length.data(), sizeof bytes);
  const Buffer content = talk->allocate(bytes, deadline);
  if (mpi.rank() == 0 && bytes > 0) {
    std::memcpy(content.data(), text.data(), text.size());
  }
  broadcast(content, bytes);
  return {reinterpret_cast<const char*>(content.data()), static_cast<std::size_t>(bytes)};
}

bool on_all_ranks(channels::Mpi& mpi, bool so, Deadline deadline) {
  const std::unique_ptr<Backend> talk = programs_on(mpi);
  const Buffer answer = talk->allocate(sizeof(std::int32_t), deadline);
  std::int32_t value = so ? 1 : 0;
  std::memcpy(answer.data(), &value, sizeof value);
  talk->run({.collective = Collective::all_reduce,
             .view = {.buffer = answer, .count = 1, .dtype = DType::i32},
             .reduction = Reduction::min},
            deadline);
  std::memcpy(&value, answer.data(), sizeof value);
  return value == 1;
}

}  // namespace dear::backends
