#include "dear/systems/moe/order.h"

#include <cstdint>

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

namespace dear::systems::moe {
namespace {

constexpr std::uint64_t kWaits = std::uint64_t{1} << 18;  // numbers start again after so many
constexpr std::uint64_t kAboveAllWaits = kWaits + 1;
constexpr std::uint64_t kAboveAll = std::uint64_t{1} << 60;

thread_local std::uint64_t waits = 0;  // so many were made
thread_local OrderLog* log_of_thread = nullptr;

void set_number(const torch::Tensor& result, std::uint64_t number) {
  if (const auto& node = result.grad_fn()) node->set_sequence_nr(number);
}

}  // namespace

void reserve_numbers() {
  while (at::sequence_number::peek() <= kAboveAllWaits) at::sequence_number::get_and_increment();
}

void wait_late(const torch::Tensor& result) { set_number(result, 1 + waits++ % kWaits); }
void compute_late(const torch::Tensor& token) { set_number(token, kAboveAllWaits); }
void compute_at_once(const torch::Tensor& token) { set_number(token, kAboveAll); }

OrderLog::OrderLog() { log_of_thread = this; }
OrderLog::~OrderLog() { log_of_thread = nullptr; }
void note(std::string_view what) {
  if (log_of_thread != nullptr) log_of_thread->entries.emplace_back(what);
}

}  // namespace dear::systems::moe
