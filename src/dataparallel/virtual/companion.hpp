// A program beside a worker, with a clock of its own.
#pragma once
#include <functional>
#include <memory>

#include "dataparallel/virtual/ground.hpp"
#include "dataparallel/virtual/mail.hpp"

namespace gradmeter::dataparallel {

/// How many computations the program beside each worker has made.
using Counts = std::vector<std::uint64_t>;

/// Starts the program at the holder's now.
std::unique_ptr<Companion> launch(Ground&, VirtualMail&, Counts&, int worker, std::function<void(Fabric&)> program);

}  // namespace gradmeter::dataparallel
