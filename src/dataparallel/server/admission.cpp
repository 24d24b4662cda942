#include "dataparallel/server/admission.hpp"

#include <algorithm>

namespace gradmeter::dataparallel {

Admission::Admission(int workers, std::uint64_t staleness)
    : clocks_(static_cast<std::size_t>(workers)), staleness_(staleness), slowest_(0), training_(workers) {}

void Admission::find_slowest() {
  slowest_ = unbounded;
  for (const Clock& c : clocks_) {
    if (!c.gone) slowest_ = std::min(slowest_, c.updates);
  }
}

void Admission::pushed(int worker) {
  Clock& c = clocks_[static_cast<std::size_t>(worker)];
  const bool was_slowest = c.updates == slowest_;
  ++c.updates;
  if (was_slowest) find_slowest();
}

void Admission::gone(int worker) {
  Clock& c = clocks_[static_cast<std::size_t>(worker)];
  if (c.gone) return;
  c.gone = true;
  --training_;
  find_slowest();
}

bool Admission::may_read(int worker, std::uint64_t clock, std::uint64_t own) const {
  if (this->clock(worker) < own) return false;
  const std::uint64_t needed = clock > staleness_ ? clock - staleness_ : 0;
  return slowest_ >= needed;
}

void StalenessCount::applied(std::uint64_t base, std::uint64_t version) {
  const std::size_t late = version - base;
  if (histogram_.size() <= late) histogram_.resize(late + 1, 0);
  ++histogram_[late];
}

std::uint64_t StalenessCount::outstanding(std::uint64_t version) const {
  std::uint64_t sum = 0;
  for (const std::uint64_t read : read_) sum += version - read;
  return sum;
}

}  // namespace gradmeter::dataparallel
