// What a thread asks of the system's scheduler.
#pragma once

namespace gradmeter::runtime {

/// For a thread that mostly sleeps and must not wait long when it wakes: shares of the core in short turns, so that it
/// comes before a computation that has the core (Linux 6.12 and later; earlier ones take no notice), and naps that
/// end on time. Needs no right; takes no more of the core than before. Of the calling thread.
void request_short_time_slices();

}  // namespace gradmeter::runtime
