// SPDX-License-Identifier: Apache-2.0
#include "bench/links/messages.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "runtime/clock.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {
namespace {

constexpr std::size_t word_bytes = sizeof(std::uint64_t);
/// Messages of one channel arrive in order, so short messages (round trips, confirmations) have a channel of their own.
constexpr int window_channel = 0, short_channel = 1, link_channels = 2;

/// splitmix64's finaliser: every bit of the result depends on every bit of x.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t seed_of(int from, std::size_t message) {
  return mixed(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(message));
}

/// The first 8 bytes of a message; they differ by sender, receiver, message in the window, and number of the window.
std::uint64_t stamp_of(int from, int to, std::size_t message, std::uint64_t number) {
  return mixed(seed_of(from, message) ^ mixed(static_cast<std::uint64_t>(to) ^ mixed(number)));
}

/// Writes the bytes after the stamp.
void write_body(std::uint64_t seed, std::span<std::byte> message) {
  for (std::size_t at = word_bytes; at < message.size(); at += word_bytes) {
    const std::uint64_t value = mixed(seed + at);
    std::memcpy(message.data() + at, &value, std::min(word_bytes, message.size() - at));
  }
}

bool has_body(std::uint64_t seed, std::span<const std::byte> message) {
  for (std::size_t at = word_bytes; at < message.size(); at += word_bytes) {
    const std::uint64_t value = mixed(seed + at);
    if (std::memcmp(message.data() + at, &value, std::min(word_bytes, message.size() - at)) != 0) return false;
  }
  return true;
}

int ranks_on_fullest_node(const runtime::Communicator& c) {
  return NodeMap{.node_of = runtime::Network::nodes_of(c, {})}.ranks_per_node();
}

}  // namespace

LinkMessages::LinkMessages(Session& session, const runtime::Communicator& c, runtime::TransportKind transport,
                           std::size_t window_bytes, const core::Injection& injection)
    : session_(session),
      communicator_(c),
      injection_(injection),
      network_(c, {.transport = transport,
                   .memory_bytes = 2 * (window_bytes + runtime::page_bytes) + 2 * runtime::page_bytes}),
      transport_(network_.connect(c, link_channels)),
      backoff_(runtime::spin_policy_for(ranks_on_fullest_node(c), session.cores_per_node())),
      leaving_(network_.arena().take(window_bytes)),
      landing_(network_.arena().take(window_bytes)),
      words_out_(network_.arena().take(short_sends_.size() * word_bytes)),
      word_in_(network_.arena().take(word_bytes)) {
  set_soak_time(0);
}

void LinkMessages::set_soak_time(double seconds) {
  const auto& slow = injection_.slow;
  slow_factor_ = slow && slow->covers(seconds) ? slow->of(communicator_.rank()) : 1.0;
}

/// If the time since `begin` was t, waits until it is `slow_factor_` × t.
void LinkMessages::stretch(double begin) const {
  if (slow_factor_ == 1) return;
  const double end = begin + slow_factor_ * (runtime::host_clock() - begin);
  constexpr double wakes_up_s = 200e-6;  // a sleep may last longer by so much
  if (const double rest = end - runtime::host_clock() - wakes_up_s; rest > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(rest));
  }
  while (runtime::host_clock() < end) std::this_thread::yield();
}

template <class Done>
void LinkMessages::wait_until(const char* what, int peer, Done done) {
  session_.activity().waiting({.operation = what, .peer = peer});
  while (!done()) {
    transport_->progress();
    backoff_.wait();
  }
  backoff_.reset();
  session_.activity().wait_ended();
}

void LinkMessages::send_short(int peer, std::uint64_t value) {
  // Does not wait until this message is read, since two peers that send to each other both send before they read.
  const std::size_t place = short_sent_++ % short_sends_.size();
  wait_until("short message", peer, [&] { return transport_->send_done(short_sends_[place]); });
  const auto out = words_out_.subspan(place * word_bytes, word_bytes);
  std::memcpy(out.data(), &value, word_bytes);
  short_sends_[place] = transport_->send(peer, short_channel, out);
}

std::uint64_t LinkMessages::receive_short(int peer) {
  auto arriving = transport_->receive(peer, short_channel, word_in_);
  std::uint64_t value = 0;
  wait_until("short message", peer, [&] {
    const std::byte* at = transport_->try_receive(arriving);
    if (at) std::memcpy(&value, at, word_bytes);
    return at != nullptr;
  });
  transport_->release(arriving);
  return value;
}

std::vector<double> LinkMessages::half_round_trips(int peer, std::size_t count) {
  std::vector<double> times;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t number = ++sent_[peer];
    const double begin = runtime::host_clock();
    send_short(peer, stamp_of(communicator_.rank(), peer, 0, number));
    const std::uint64_t back = receive_short(peer);
    stretch(begin);
    times.push_back((runtime::host_clock() - begin) / 2);
    if (back != stamp_of(peer, communicator_.rank(), 0, number)) ++wrong_[peer];
  }
  return times;
}

void LinkMessages::answer(int peer, std::size_t count) {
  double begin = runtime::host_clock();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t number = ++received_[peer];
    const std::uint64_t came = receive_short(peer);
    if (i > 0) stretch(begin);
    begin = runtime::host_clock();
    send_short(peer, stamp_of(communicator_.rank(), peer, 0, number));
    if (came != stamp_of(peer, communicator_.rank(), 0, number)) ++wrong_[peer];
  }
}

void LinkMessages::fill(std::size_t size, std::size_t outstanding) {
  if (size == filled_size_ && outstanding <= filled_count_) return;
  for (std::size_t m = 0; m < outstanding; ++m) {
    write_body(seed_of(communicator_.rank(), m), leaving_.subspan(m * size, size));
  }
  filled_size_ = size;
  filled_count_ = outstanding;
}

/// Takes the messages that have arrived. A message that the transport shows in the sender's own memory is copied, since
/// no bytes have been moved yet.
void LinkMessages::collect(std::vector<runtime::MessageHandle>& arriving, std::size_t size, std::size_t& landed) {
  while (landed < arriving.size()) {
    const std::byte* at = transport_->try_receive(arriving[landed]);
    if (!at) return;
    const auto place = landing(landed, size);
    if (at != place.data()) std::memcpy(place.data(), at, size);
    transport_->release(arriving[landed]);
    ++landed;
  }
}

double LinkMessages::exchange(const Window& w, bool check_all) {
  const std::uint64_t send_number = w.to >= 0 ? ++sent_[w.to] : 0,
                      receive_number = w.from >= 0 ? ++received_[w.from] : 0;
  std::vector<runtime::MessageHandle> arriving, leaving;
  if (w.to >= 0) {
    fill(w.size_bytes, w.outstanding);
    for (std::size_t m = 0; m < w.outstanding; ++m) {
      const std::uint64_t stamp = stamp_of(communicator_.rank(), w.to, m, send_number);
      std::memcpy(leaving_.data() + m * w.size_bytes, &stamp, std::min(word_bytes, w.size_bytes));
    }
  }
  if (w.from >= 0) {
    if (check_all) std::memset(landing_.data(), 0xa5, w.outstanding * w.size_bytes);
    for (std::size_t m = 0; m < w.outstanding; ++m) {
      arriving.push_back(transport_->receive(w.from, window_channel, landing(m, w.size_bytes)));
    }
    send_short(w.from, receive_number);
  }
  if (w.to >= 0) receive_short(w.to);
  const double begin = runtime::host_clock();
  for (std::size_t m = 0; m < (w.to >= 0 ? w.outstanding : 0); ++m) {
    leaving.push_back(transport_->send(w.to, window_channel, leaving_.subspan(m * w.size_bytes, w.size_bytes)));
  }
  std::size_t landed = 0;
  if (w.from >= 0) {
    wait_until("window of messages", w.from, [&] {
      collect(arriving, w.size_bytes, landed);
      return landed == arriving.size();
    });
    stretch(begin);
    send_short(w.from, receive_number);
  }
  if (w.to >= 0) {
    receive_short(w.to);
    wait_until("window of messages", w.to, [&] {
      return std::all_of(leaving.begin(), leaving.end(), [&](auto& m) { return transport_->send_done(m); });
    });
    if (w.from < 0) stretch(begin);
  }
  const double took = runtime::host_clock() - begin;
  if (w.from >= 0) {
    damage(w);
    check(w, receive_number, check_all);
  }
  return took;
}

void LinkMessages::damage(const Window& w) {
  const bool injects = injection_.flip && injection_.flip->rank == communicator_.rank();
  for (std::size_t m = 0; m < w.outstanding; ++m) {
    if (injects && messages_received_ >= injection_.flip->call) landing(m, w.size_bytes).back() ^= std::byte{1};
    ++messages_received_;
  }
}

void LinkMessages::check(const Window& w, std::uint64_t number, bool check_all) {
  for (std::size_t m = 0; m < w.outstanding; ++m) {
    const auto message = landing(m, w.size_bytes);
    const std::uint64_t stamp = stamp_of(w.from, communicator_.rank(), m, number);
    const bool right = std::memcmp(message.data(), &stamp, std::min(word_bytes, w.size_bytes)) == 0 &&
                       (!check_all || has_body(seed_of(w.from, m), message));
    if (!right) ++wrong_[w.from];
  }
}

std::size_t LinkMessages::take_wrong(int from) { return std::exchange(wrong_[from], 0); }

}  // namespace gradmeter::bench
