#include "dataparallel/simulation/injected_machine.hpp"

#include <cmath>

#include "core/error.hpp"

namespace gradmeter::dataparallel {

SimMachine injected(SimMachine machine, const core::Injection& i) {
  if (i.slow) {
    machine.slowdown = [slow = *i.slow](int rank, std::uint64_t) { return slow.of(rank); };
    machine.background_slowdown = machine.slowdown;
  }
  const core::MessageFaults& m = i.messages;
  if (m.drop || m.delay) {
    machine.delivery_fault = [m](const MessageRoute& r) {
      const core::MessagePlace place{.from = static_cast<std::uint32_t>(r.from),
                                     .to = static_cast<std::uint32_t>(r.to),
                                     .channel = static_cast<std::uint32_t>(r.to_role),
                                     .number = r.number};
      const core::MessageFaults delay_alone{.delay = m.delay};
      return DeliveryFault{.copies = m.drop && m.drop->losses(place) > 0 ? 0 : 1,
                           .delay_s = {delay_alone.extra_s(place), 0}};
    };
  }
  if (m.cut) {
    if (!std::isinf(m.cut->for_s))
      throw core::UsageError("--inject cut: in virtual time a cut link stays cut; leave out for=");
    machine.failures.push_back({.rank = m.cut->rank, .at_s = m.cut->at_s});
  }
  return machine;
}

}  // namespace gradmeter::dataparallel
