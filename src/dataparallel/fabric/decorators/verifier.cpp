// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/decorators/verifier.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "allreduce/schedule/slices.hpp"
#include "core/format.hpp"
#include "dataparallel/fabric/decorators/checksums.hpp"
#include "dataparallel/fabric/fabric.hpp"

namespace gradmeter::dataparallel {
namespace {

/// The hash of a message. It is never 0, which means that there is no hash.
std::uint64_t hash_of(MessageHeader h, std::span<const std::byte> payload) {
  constexpr std::uint64_t header_seed = 1, payload_seed = 2;
  h.hash = 0;
  const std::uint64_t hash =
      linear_hash(std::as_bytes(std::span(&h, 1)), header_seed) + linear_hash(payload, payload_seed);
  return hash == 0 ? 1 : hash;
}

}  // namespace

class MessageVerifier::CheckedPort final : public ForwardingPort {
 public:
  /// armed: whether messages get a hash now; null for a server's port.
  CheckedPort(MessageVerifier& owner, std::unique_ptr<Port> inner, std::function<bool()> armed)
      : ForwardingPort(std::move(inner)), owner_(owner), armed_(std::move(armed)) {}

  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override {
    const auto room = inner_->draft(to, bytes);
    if (room) drafts_[to] = *room;
    return room;
  }

  Ticket post(int to, const MessageHeader& given, const char* label) override {
    const MessageHeader h = with_hash(to, given, drafts_[to].first(given.bytes));
    count(h);
    return inner_->post(to, h, label);
  }
  Ticket post_from(int to, const MessageHeader& given, std::span<const std::byte> payload, const char* label) override {
    const MessageHeader h = with_hash(to, given, payload);
    Ticket t = inner_->post_from(to, h, payload, label);
    if (t) count(h);
    return t;
  }
  Ticket post_written(int to, const MessageHeader& given, std::span<std::byte> payload, const char* label) override {
    const MessageHeader h = with_hash(to, given, payload);
    Ticket t = inner_->post_written(to, h, payload, label);
    if (t) count(h);
    return t;
  }

  std::optional<Message> next(const char* why, double deadline, int from) override {
    auto message = inner_->next(why, deadline, from);
    if (!message || message->is_failure_notice) return message;
    const bool verified = message->header.hash != 0;
    if (verified && hash_of(message->header, message->payload) != message->header.hash) owner_.report_fault(*message);
    if (armed_) {
      if (verified && !message->payload.empty()) ++owner_.received_;
    } else if (verified) {
      verified_workers_.insert(message->from);
    } else {
      verified_workers_.erase(message->from);
    }
    return message;
  }

 private:
  MessageHeader with_hash(int to, MessageHeader h, std::span<const std::byte> payload) const {
    const bool verified = armed_ ? armed_() : verified_workers_.contains(to);
    // A server may make an answer from the header of a request; the hash in that header is not the answer's.
    h.hash = verified ? hash_of(h, payload) : 0;
    return h;
  }
  void count(const MessageHeader& h) {
    if (h.hash != 0 && armed_ && h.bytes > 0) ++owner_.posted_;
  }

  MessageVerifier& owner_;
  std::function<bool()> armed_;
  std::unordered_set<int> verified_workers_;              ///< for a server: workers whose last message had a hash
  std::unordered_map<int, std::span<std::byte>> drafts_;  ///< the last draft to each rank
};

Ports MessageVerifier::wrap(Ports p, std::function<bool()> worker_is_armed) {
  return {.worker = std::make_unique<CheckedPort>(*this, std::move(p.worker), std::move(worker_is_armed)),
          .server = std::make_unique<CheckedPort>(*this, std::move(p.server), nullptr)};
}

void MessageVerifier::report_fault(const Message& m) {
  const std::lock_guard lock(mutex_);
  if (!fault_.empty()) return;
  fault_ = fmt::format("a message of {} bytes from rank {} (elements from {} on, clock {}) is not what was sent",
                       m.payload.size(), m.from, m.header.first, m.header.clock);
}

std::string MessageVerifier::take_fault() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fault_, {});
}

namespace {

constexpr double unit_roundoff = 0x1p-24;
/// The tolerance of a sum, in units of √P·u·Σ‖x_r‖ (see Verifier).
constexpr double deviations = 16;
constexpr double coded_deviations = 2 * deviations;  ///< of a sum with a codec
constexpr double underflow = 1e-30;                  ///< bound of the error by numbers too small for fp32
constexpr std::size_t hash_doubles = 2;              ///< the number of doubles in which a hash is summed
constexpr std::size_t word_bytes = sizeof(std::uint32_t);

/// Adds a hash to a sum, as two whole numbers of 32 bits. Their sums over up to 2^21 ranks are exact in fp64, and give
/// the sum of the hashes modulo 2^64.
void add_hash(std::span<double> to, std::uint64_t hash) {
  to[0] += static_cast<double>(hash & 0xffffffffu);
  to[1] += static_cast<double>(hash >> 32);
}
std::uint64_t hash_in(std::span<const double> sums) {
  return static_cast<std::uint64_t>(sums[0]) + (static_cast<std::uint64_t>(sums[1]) << 32);
}

std::uint64_t hash_of(const ConstBuffer& b, std::uint64_t seed, std::size_t first_element = 0) {
  return linear_hash({b.host(), b.bytes()}, seed, first_element * (b.count() ? b.bytes() / b.count() : 0) / word_bytes);
}

/// The block of one rank in a buffer of `count` elements.
Range block_of(std::size_t count, int ranks, int rank) {
  const auto p = static_cast<std::uint32_t>(ranks), r = static_cast<std::uint32_t>(rank);
  const std::size_t first = allreduce::block_begin(count, p, r);
  return {first, allreduce::block_begin(count, p, r + 1) - first};
}

/// The projection of the elements that lie in tensors; with a codec, no others are exchanged.
Projection project_tensors(std::span<const float> x, std::span<const allreduce::TensorPart> tensors,
                           std::uint64_t seed) {
  Projection sum;
  for (const auto& t : tensors) {
    const Projection p = project(x.subspan(t.offset, t.count), seed, t.offset);
    sum.product += p.product;
    sum.square += p.square;
  }
  return sum;
}

}  // namespace

/// What is kept of a call with a codec until its result has come.
struct CodedCall {
  std::vector<float> values;
  allreduce::CodingDifference difference;
  allreduce::TensorLayout tensor_layout;
};

/// What the result of a call must be. sum: the sum of the inputs, up to rounding. copy: the bits of the input. coded:
/// up to rounding, the sum of the inputs and of the differences that encoding makes; and the same bits as on rank 0.
enum class Relation : std::uint8_t { sum, copy, coded };

/// A collective, or a message that is received.
struct Verifier::VerifiedCall {
  const char* name = nullptr;
  Group group = {};
  Relation relation = Relation::copy;
  Buffer result = runtime::empty_buffer;  ///< where this rank gets the result
  std::size_t first = 0, count = 0;       ///< the elements of the whole buffer that `result` holds
  std::uint64_t number = 0, step = 0;
  std::optional<int> from = {};  ///< for a message: its sender
  double share = 1;              ///< the factor from the sum to the result: 1/P for an average
  /// Checksums of this rank's input, which `check_group` sums over all ranks. sum: the projection of each block, then
  /// the norm. copy: a hash. coded: projection, norm, and (from rank 0 alone) a hash of the result.
  std::vector<double> checksums = {};
  std::unique_ptr<CodedCall> coding = {};
  std::size_t own_block = 0;  ///< the block of the sum that this rank gets
  double product = 0;         ///< projection of this rank's result
  std::uint64_t hash = 0;     ///< hash of this rank's result
  Ticket ticket = {};         ///< kept so that no other operation gets its address, the key of `under_way_`
};

/// sent: for each peer, the sum of the hashes of the messages to it. received: the sum of the hashes of all messages
/// received.
struct Verifier::Messages {
  std::vector<double> sent;
  std::uint64_t received = 0;
  std::map<int, std::uint64_t> sends_to, receives_from;  ///< numbers of sends and of receives so far, by peer
};

struct Verifier::VerifiedGroup {
  explicit VerifiedGroup(runtime::Communicator c) : communicator(std::move(c)) {}
  runtime::Communicator communicator;
  std::uint64_t calls = 0;
  std::map<std::uint64_t, VerifiedCall>
      done;  ///< completed collectives, by number; all ranks post them in the same order
  Messages messages;
};

Verifier::Verifier(Fabric& inner, const runtime::Communicator& world, bool coded)
    : ForwardingFabric(inner), world_(world), coded_(coded), armed_(1), called_(1), verified_step_(1) {
  verified_groups_.push_back(std::make_unique<VerifiedGroup>(world.duplicate()));
}
Verifier::~Verifier() = default;

void Verifier::arm() { std::fill(armed_.begin(), armed_.end(), 1); }
void Verifier::disarm() { std::fill(armed_.begin(), armed_.end(), 0); }

void Verifier::begin_step(std::uint64_t number) {
  in_step_ = true;
  step_ = number;
  std::fill(called_.begin(), called_.end(), 0);
  messages_before_ = message_verifier_.posted() + message_verifier_.received();
}

void Verifier::end_step() {
  in_step_ = false;
  verified_last_ = false;
  if (message_verifier_.posted() + message_verifier_.received() != messages_before_)
    called_[static_cast<std::size_t>(port_group_.id)] = 1;
  for (std::size_t g = 0; g < armed_.size(); ++g) {
    const bool verified = armed_[g] && called_[g];
    verified_step_[g] = static_cast<char>(verified);
    if (!verified) continue;
    armed_[g] = 0;
    verified_last_ = true;
  }
}

bool Verifier::verifies(const FabricCall& call) {
  const auto i = static_cast<std::size_t>(call.group.id);
  if (call.of_last_step) return verified_step_[i] != 0;
  if (!in_step_ || !armed_[i]) return false;
  called_[i] = 1;
  return true;
}

Group Verifier::split(int color, int key) {
  const Group g = inner_.split(color, key);
  verified_groups_.push_back(std::make_unique<VerifiedGroup>(world_.split(color, key)));
  armed_.push_back(0);
  called_.push_back(0);
  verified_step_.push_back(0);
  return g;
}

Ticket Verifier::note(Ticket t, VerifiedCall verified_call) {
  verified_call.step = step_;
  verified_call.ticket = t;
  const PendingCall* key = t.get();
  under_way_.insert_or_assign(key, std::move(verified_call));
  return t;
}

std::uint64_t Verifier::next_number(Group g) { return verified_group(g).calls++; }

Ticket Verifier::start(const FabricCall& call) {
  if (!verifies(call)) return inner_.start(call);
  if (call.kind == CallKind::send) {
    inner_.run_and_wait([&] { note_send(call); });
    return inner_.start(call);
  }
  VerifiedCall verified_call;
  inner_.run_and_wait([&] { verified_call = note_input(call); });  // before the call begins, since it works in place
  FabricCall with_difference = call;
  if (verified_call.coding) with_difference.tensor_layout = verified_call.coding->tensor_layout;
  return note(inner_.start(with_difference), std::move(verified_call));
}

/// Computes the checksums of this rank's input to a collective, or notes a receive. Sends are noted by `note_send`.
Verifier::VerifiedCall Verifier::note_input(const FabricCall& call) {
  const Group g = call.group;
  VerifiedCall verified_call{.name = label(call.kind), .group = g, .relation = Relation::copy, .result = call.out};
  verified_call.count = call.out.count();
  if (call.kind == CallKind::receive) {
    verified_call.from = call.peer;
    verified_call.number = messages(g).receives_from[call.peer]++;
    return verified_call;
  }
  verified_call.number = next_number(g);
  if (call.kind == CallKind::all_gather) {
    const Range own = block_of(verified_call.count, size(g), rank(g));
    verified_call.checksums.assign(hash_doubles, 0.0);
    add_hash(verified_call.checksums, hash_of(call.in.part(own.first, own.count), verified_call.number, own.first));
  } else if (call.kind == CallKind::broadcast) {
    verified_call.checksums.assign(hash_doubles, 0.0);
    if (rank(g) == call.peer) add_hash(verified_call.checksums, hash_of(call.in, verified_call.number));
  } else {
    check_summable(call);
    if (call.op == allreduce::Op::average) verified_call.share = 1.0 / size(g);
    if (coded_ && !call.tensor_layout.tensors.empty()) {
      project_coded(verified_call, call);
    } else {
      project_sum(verified_call, call);
    }
  }
  return verified_call;
}

/// Projects each block of the input. An all-reduce counts as one block, whose sum all ranks get.
void Verifier::project_sum(VerifiedCall& verified_call, const FabricCall& call) {
  verified_call.relation = Relation::sum;
  const bool scatters = call.kind == CallKind::reduce_scatter;
  const int blocks = scatters ? size(verified_call.group) : 1, own = scatters ? rank(verified_call.group) : 0;
  double square = 0;
  for (int q = 0; q < blocks; ++q) {
    const Range block = block_of(verified_call.count, blocks, q);
    const Projection p =
        project(call.in.values<float>().subspan(block.first, block.count), verified_call.number, block.first);
    verified_call.checksums.push_back(p.product);
    square += p.square;
  }
  verified_call.checksums.push_back(std::sqrt(square));
  const Range block = block_of(verified_call.count, blocks, own);
  verified_call.result = call.out.part(block.first, block.count);
  verified_call.first = block.first;
  verified_call.own_block = static_cast<std::size_t>(own);
}

void Verifier::project_coded(VerifiedCall& verified_call, const FabricCall& call) {
  verified_call.relation = Relation::coded;
  const Projection mine = project_tensors(call.in.values<float>(), call.tensor_layout.tensors, verified_call.number);
  verified_call.checksums = {mine.product * verified_call.share, std::sqrt(mine.square) * verified_call.share};
  verified_call.checksums.resize(verified_call.checksums.size() + hash_doubles);
  verified_call.coding = std::make_unique<CodedCall>();
  CodedCall& coding = *verified_call.coding;
  coding.values.resize(verified_call.count);
  coding.difference.values = coding.values;
  coding.tensor_layout = call.tensor_layout;
  coding.tensor_layout.difference = &coding.difference;
}

namespace {

/// The seed of a message's hash. Each message between two ranks has keys of its own, so that none can be mistaken for
/// another.
std::uint64_t message_seed(int from, int to, std::uint64_t number) {
  return (static_cast<std::uint64_t>(from) << 40) ^ (static_cast<std::uint64_t>(to) << 20) ^ (number + 1);
}

}  // namespace

Verifier::Messages& Verifier::messages(Group g) {
  Messages& m = verified_group(g).messages;
  m.sent.resize(hash_doubles * static_cast<std::size_t>(size(g)));
  return m;
}

void Verifier::note_send(const FabricCall& call) {
  Messages& m = messages(call.group);
  const auto seed = message_seed(rank(call.group), call.peer, m.sends_to[call.peer]++);
  add_hash(std::span(m.sent).subspan(hash_doubles * static_cast<std::size_t>(call.peer), hash_doubles),
           hash_of(call.in, seed));
}

void Verifier::wait(const Ticket& t) {
  inner_.wait(t);
  const auto it = under_way_.find(t.get());
  if (it == under_way_.end()) return;
  VerifiedCall verified_call = std::move(it->second);
  under_way_.erase(it);
  inner_.run_and_wait([&] { note_result(verified_call); });
  if (verified_call.from) return;
  verified_call.ticket.reset();
  const std::uint64_t number = verified_call.number;
  verified_group(verified_call.group).done.insert_or_assign(number, std::move(verified_call));
}

void Verifier::note_result(VerifiedCall& verified_call) {
  if (verified_call.from) {
    verified_group(verified_call.group).messages.received += hash_of(
        verified_call.result, message_seed(*verified_call.from, rank(verified_call.group), verified_call.number));
    return;
  }
  if (verified_call.relation == Relation::sum) {
    verified_call.product =
        project(verified_call.result.values<float>(), verified_call.number, verified_call.first).product;
  } else {
    verified_call.hash = hash_of(verified_call.result, verified_call.number);
  }
  if (verified_call.coding) {
    const auto tensors = verified_call.coding->tensor_layout.tensors;
    verified_call.product =
        project_tensors(verified_call.result.values<float>(), tensors, verified_call.number).product;
    verified_call.checksums[0] += project_tensors(verified_call.coding->values, tensors, verified_call.number).product;
    verified_call.checksums[1] += std::sqrt(verified_call.coding->difference.term_squares);
    if (rank(verified_call.group) == 0)
      add_hash(std::span(verified_call.checksums).last(hash_doubles), verified_call.hash);
    verified_call.coding.reset();
  }
}

Ports Verifier::open(Group g, const PortOptions& o) {
  port_group_ = g;
  return message_verifier_.wrap(inner_.open(g, o),
                                [this, g] { return in_step_ && armed_[static_cast<std::size_t>(g.id)] != 0; });
}

void Verifier::check_summable(const FabricCall& call) {
  const bool sums = call.op == allreduce::Op::sum || call.op == allreduce::Op::average;
  if (call.in.element() != core::Element::f32 || !sums) {
    throw std::logic_error("a verified step made a reduction of another kind than a sum of fp32, which nothing judges");
  }
}

void Verifier::report_fault(std::string what) {
  if (fault_.empty()) fault_ = std::move(what);
}

/// Checks the calls and messages of one group. All its ranks must have made the same.
void Verifier::check_group(VerifiedGroup& group) {
  const runtime::Communicator& comm = group.communicator;
  std::vector<double> projections;
  for (const auto& [number, call] : group.done)
    projections.insert(projections.end(), call.checksums.begin(), call.checksums.end());
  const auto n = static_cast<double>(projections.size());
  std::array<double, 3> counts{n, n * n, group.messages.sent.empty() ? 0.0 : 1.0};
  comm.sum(std::span<double>(counts));
  if (counts[0] * counts[0] != counts[1] * comm.size()) {
    report_fault("ranks have made different calls in one verified step");
  } else if (n > 0) {
    comm.sum(std::span<double>(projections));
    std::span<const double> rest = projections;
    for (const auto& [number, call] : group.done) {
      check_call(call, rest.first(call.checksums.size()));
      rest = rest.subspan(call.checksums.size());
    }
  }
  if (counts[2] > 0) {
    std::vector<double>& sent = group.messages.sent;
    sent.resize(hash_doubles * static_cast<std::size_t>(comm.size()));
    comm.sum(std::span<double>(sent));
    const auto mine =
        std::span<const double>(sent).subspan(hash_doubles * static_cast<std::size_t>(comm.rank()), hash_doubles);
    if (hash_in(mine) != group.messages.received) report_fault("the messages that came are not those that were sent");
  }
  group.done.clear();
  group.messages = {};
}

std::string Verifier::text_of(const VerifiedCall& verified_call) {
  return fmt::format("the {} of {} elements in step {}", verified_call.name, verified_call.count, verified_call.step);
}

void Verifier::check_call(const VerifiedCall& verified_call, std::span<const double> checksums) {
  if (verified_call.relation == Relation::sum)
    return check_sum(verified_call, checksums[verified_call.own_block] * verified_call.share,
                     checksums.back() * verified_call.share, deviations);
  if (hash_in(checksums.last(hash_doubles)) != verified_call.hash) {
    const bool copy = verified_call.relation == Relation::copy;
    report_fault(fmt::format("{} {}", text_of(verified_call),
                             copy ? "did not bring what was given" : "has other bits than on the first rank"));
  } else if (verified_call.relation == Relation::coded) {
    check_sum(verified_call, checksums[0], checksums[1], coded_deviations);
  }
}

/// expected: the projection that the result must have. norm: the sum over ranks of the norms of their inputs.
void Verifier::check_sum(const VerifiedCall& verified_call, double expected, double norm, double allowed_deviations) {
  if (!std::isfinite(norm) && may_overflow_) {
    // Every rank must see from its result that a number was not finite, or it would not skip the step as the others do.
    if (!std::isfinite(expected) && std::isfinite(verified_call.product))
      report_fault(text_of(verified_call) + " lost what is not finite");
    return;
  }
  if (!std::isfinite(norm))
    return report_fault(text_of(verified_call) + " cannot be checked: it was given numbers that are not finite");
  const double error = std::fabs(verified_call.product - expected), ranks = size(verified_call.group);
  const double allowed = allowed_deviations * std::sqrt(ranks) * unit_roundoff * norm + underflow;
  if (error <= allowed) return;
  report_fault(fmt::format("{} is off by {:.3g} in its projection, where rounding explains {:.1g}",
                           text_of(verified_call), error, allowed));
}

std::string Verifier::take_fault() {
  for (auto& group : verified_groups_) check_group(*group);
  if (std::string message = message_verifier_.take_fault(); !message.empty()) report_fault(std::move(message));
  if (!under_way_.empty()) report_fault("a verified call was never waited for, so nothing judges it");
  under_way_.clear();
  const int first_faulty =
      world_.size() - static_cast<int>(world_.max(fault_.empty() ? 0 : world_.size() - world_.rank()));
  if (first_faulty == world_.size()) return {};
  const std::string mine = fault_.empty() ? "" : fmt::format("on rank {} {}", world_.rank(), fault_);
  fault_.clear();
  return world_.broadcast_text(mine, first_faulty);
}

}  // namespace gradmeter::dataparallel
