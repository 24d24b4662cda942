// The data set of a job: drawn by every rank for itself, or read from files once a node.
#pragma once
#include "model/data.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

/// Collective over `world`, as is the destruction of the last copy of the result. Equal bytes on every rank of a node.
/// Cost:   of images, one reading and their bytes a node; text is read and held by every rank; what is drawn, see
/// model::make_data.
/// Errors: UsageError, on all ranks of a node whose files are at fault.
model::DataSplit load_data(const runtime::Communicator& world, const model::DataOptions&);

}  // namespace gradmeter::bench
