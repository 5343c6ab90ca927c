#include "dear/base/os/prompt_thread.h"

#include <cstdint>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dear::os {
namespace {

// The kernel's struct sched_attr, first version; glibc has none.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;  // for SCHED_OTHER the length of its turns, from 100 us on
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};

constexpr std::uint64_t kTurnNs = 100'000;
constexpr int kUrgentNice = -15;

}  // namespace

void make_this_thread_prompt() {
  // Without this the kernel lets a thread sleep up to 50 us longer, which is as long as a message on a
  // modelled link.
  prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
  SchedulingAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;  // whoever chose another knows better
  attributes.runtime_ns = kTurnNs;
  attributes.deadline_ns = attributes.period_ns = 0;
  attributes.nice = kUrgentNice;
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) == 0) return;
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace dear::os
