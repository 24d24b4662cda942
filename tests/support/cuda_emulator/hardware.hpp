// SPDX-License-Identifier: Apache-2.0
// What a device has too few of for kernels that wait for each other. Under a lock.
#pragma once
#include "support/cuda_emulator/emulator.hpp"
#include "support/cuda_emulator/streams.hpp"

namespace cuda_emulator {

/// What holds now: nothing while the device is shared.
Hardware hardware_now();

/// The queue of the hardware with the fewest streams; called for a stream that the program makes.
int take_hardware_queue();
void give_back_hardware_queue(int queue);

/// The stream whose kernel keeps this stream's first work from beginning; null: none does.
const Stream* holder_of(const Stream&);

/// Kernels that may wait for others: a device would have begun them. Errors: a hang, reported as that of `call`.
cudaError_t wait_for_waiting_kernels(const char* call);
/// The same at the first launch of a kernel, which loads its code.
cudaError_t load(const void* function, const Stream&);

/// Before the launch of a kernel: waits until its stream takes it. Errors: a hang, reported.
cudaError_t wait_for_place(const Stream&);

/// One line for what never ends, with the reason where the device's limits are it.
void report_hang_of(const Stream&);

}  // namespace cuda_emulator
