#include "dataparallel/server/courier.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t credits = 4;  ///< chunks that a server has not acknowledged, at most

/// When an unanswered message is sent again [s], only where messages get lost. Twice as long after every try, since a
/// server may hold a read back for long; a goodbye is given up in the end: the server that heard it may be gone.
constexpr double first_wait_s = 1e-3;
constexpr int longest_wait_doublings = 6, goodbyes = 24;
double wait_after(int tries) {
  return first_wait_s * static_cast<double>(1 << std::min(tries, longest_wait_doublings));
}

std::uint16_t number(Word w) { return static_cast<std::uint16_t>(w); }

}  // namespace

Courier::Courier(Fabric& fabric, std::unique_ptr<Port> port, const Sharding& sharding, const CourierPlan& plan,
                 std::span<const float> first)
    : fabric_(fabric),
      port_(std::move(port)),
      sharding_(sharding),
      plan_(plan),
      line_of_(sharding.servers(), 0),
      encoders_(sharding.servers()),
      change_(std::span<const float>()),
      weights_(first.begin(), first.end()) {
  for (std::uint32_t s = 0; s < sharding.servers(); ++s) {
    if (sharding.shard(s).count == 0) continue;
    line_of_[s] = lines_.size();
    const std::size_t chunks = sharding.chunks(s);
    lines_.push_back({.shard = s, .rank = plan.first_server + static_cast<int>(s), .chunks = chunks, .next = chunks});
    for (std::size_t i = 0; i < chunks; ++i) {
      encoders_[s].push_back(plan_.changes.encoder(sharding.chunk(s, i).count));
    }
  }
}

template <class Done>
void Courier::wait_for(const char* why, const Done& done) {
  fabric_.exchange(why, [&] {
    send();
    for (;;) {
      const auto behind = std::find_if_not(lines_.begin(), lines_.end(), done);
      if (behind == lines_.end()) return;
      if (const auto mail = port_->next(why, next_time(), behind->rank)) take(*mail);
      send();
    }
  });
}

void Courier::begin_push(ConstBuffer change, float size, bool fetch) {
  change_ = change;
  size_ = size;
  ready_ = 0;
  fetch_ = fetch;
  ++clock_;
  if (fetch) ++sequence_;
  for (Line& line : lines_) {
    line.next = 0;
    if (fetch) expect(line, Word::pull, clock_, clock_);
  }
}

void Courier::ready(std::size_t elements) {
  ready_ = elements;
  fabric_.exchange("push", [this] {
    while (const auto mail = port_->poll()) take(*mail);
    send();
  });
}

void Courier::finish_push() {
  ready_ = sharding_.elements();
  wait_for("servers to take changes", [](const Line& l) { return l.next == l.chunks; });
}

void Courier::request(std::uint64_t clock, std::uint64_t own) { ask(Word::pull, clock, own); }

void Courier::ask(Word word, std::uint64_t clock, std::uint64_t own) {
  ++sequence_;
  fabric_.exchange("pull", [&] {
    for (Line& line : lines_) {
      expect(line, word, clock, own);
      line.asks = true;
    }
    send();
  });
}

void Courier::expect(Line& line, Word word, std::uint64_t clock, std::uint64_t own) {
  line.missing = line.chunks;
  line.here.assign(line.chunks, false);
  line.incoming = 0;
  line.request = {
      .header = {.operation = number(word), .shard = line.shard, .clock = clock, .version = own, .sequence = sequence_},
      .again = std::numeric_limits<double>::infinity()};
}

void Courier::receive() {
  wait_for("weights from servers", [](const Line& l) { return l.missing == 0; });
}

void Courier::fetch(Buffer to) {
  receive();
  const auto out = to.values<float>();
  fabric_.compute("weights", {0, 8.0 * double(out.size())}, [&] { std::ranges::copy(weights_, out.begin()); });
  for (Line& line : lines_) {
    line.base = line.incoming;
    line.reached = line.incoming_reached;
  }
}

std::uint64_t Courier::reached() const {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const Line& line : lines_) least = std::min(least, line.reached);
  return least;
}

void Courier::look(Buffer to) {
  looked_ = to.values<float>();
  ask(Word::look, 0, clock_);
  receive();
}

void Courier::settle() {
  wait_for("servers to acknowledge changes",
           [](const Line& l) { return l.next == l.chunks && l.unacknowledged.empty(); });
}

void Courier::say_goodbye() {
  leaving_ = true;
  for (Line& line : lines_) line.asks = true;
  wait_for("servers to hear the goodbye", [](const Line& l) { return !l.asks && l.unacknowledged.empty(); });
}

void Courier::take(const Mail& mail) {
  const int server = mail.from - plan_.first_server;
  if (mail.obituary) {
    if (server < 0 || server >= static_cast<int>(sharding_.servers())) return;
    throw core::BackendError("the fabric", "next",
                             fmt::format("rank {} has died, and with it its part of the weights", mail.from));
  }
  const MailHeader& h = mail.header;
  Line& line = lines_[line_of_.at(h.shard)];
  switch (static_cast<Word>(h.operation)) {
    case Word::ack:
      return take_acknowledgement(line, h);
    case Word::weights:
      return take_weights(line, h, mail.payload);
    default:
      break;
  }
  throw std::logic_error(fmt::format("a server sent a worker operation {}", h.operation));
}

void Courier::take_acknowledgement(Line& line, const MailHeader& h) {
  const auto it = std::find_if(line.unacknowledged.begin(), line.unacknowledged.end(),
                               [&](const Posted& p) { return p.header.clock == h.clock && p.header.first == h.first; });
  if (it != line.unacknowledged.end()) line.unacknowledged.erase(it);
}

void Courier::take_weights(Line& line, const MailHeader& h, std::span<const std::byte> payload) {
  if (h.sequence != sequence_ || line.missing == 0) return;
  const std::size_t chunk = sharding_.chunk_of(line.shard, h.first);
  if (line.here.at(chunk)) return;
  line.incoming = h.version;
  line.incoming_reached = h.clock;
  const bool looks = line.request.header.operation == number(Word::look);
  const auto out = (looks ? looked_ : std::span(weights_)).subspan(h.first, h.count);
  const Coding coding = looks ? Coding() : plan_.weights;
  const compression::Draw draw = draw_of_weights(plan_.seed, h.shard, h.version, h.first);
  coding.work(fabric_, "weights.decode", h.count, h.bytes, [&] {
    if (!coding.encodes(h.count)) return coding.decode(payload, out, draw);
    decoded_.resize(h.count);
    coding.decode(payload, decoded_, draw);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += decoded_[i];
  });
  line.here[chunk] = true;
  --line.missing;
}

void Courier::send() {
  for (Line& line : lines_) {
    if (port_->lossy()) send_again(line);
    if (line.asks && (leaving_ ? send_goodbye(line) : send_request(line))) line.asks = false;
    while (send_chunk(line)) {
    }
  }
}

bool Courier::send_request(Line& line) {
  if (!port_->draft(line.rank, 0)) return false;
  port_->post(line.rank, line.request.header, "pull");
  line.request.again = fabric_.now() + wait_after(0);
  return true;
}

bool Courier::send_goodbye(Line& line) {
  if (!port_->draft(line.rank, 0)) return false;
  const MailHeader h{.operation = number(Word::bye), .shard = line.shard, .clock = clock_ + 1};
  port_->post(line.rank, h, "goodbye");
  if (port_->lossy()) line.unacknowledged.push_back({.header = h, .again = fabric_.now() + wait_after(0)});
  return true;
}

/// The next chunk. Returns the bytes written.
std::size_t Courier::encode(Line& line, Range chunk, std::byte* wire) {
  const auto values = change_.values<float>().subspan(chunk.first, chunk.count);
  const compression::Draw draw = draw_of_change(plan_.seed, plan_.rank, clock_ - 1, chunk.first);
  std::size_t bytes = 0;
  plan_.changes.work(fabric_, "push.encode", chunk.count, plan_.changes.wire_bytes(chunk.count),
                     [&] { bytes = encoders_[line.shard][line.next]->encode(values, wire, draw); });
  return bytes;
}

/// One chunk, if it is ready and there is room for it.
bool Courier::send_chunk(Line& line) {
  if (line.next == line.chunks || line.unacknowledged.size() >= credits) return false;
  if (line.next == 0 && !line.unacknowledged.empty()) return false;  // one update at a time
  const Range chunk = sharding_.chunk(line.shard, line.next);
  if (chunk.end() > ready_) return false;
  const std::size_t most = plan_.changes.wire_bytes(chunk.count);
  const auto draft = port_->draft(line.rank, most);
  if (!draft) return false;
  const std::size_t bytes = encode(line, chunk, draft->data());
  const MailHeader h{.operation = number(Word::push),
                     .shard = line.shard,
                     .clock = clock_ - 1,
                     .version = line.base,
                     .sequence = fetch_ ? sequence_ : 0,
                     .first = chunk.first,
                     .count = chunk.count,
                     .bytes = bytes,
                     .value = size_};
  Posted posted{.header = h, .again = fabric_.now() + wait_after(0)};
  if (port_->lossy()) posted.payload.assign(draft->begin(), draft->begin() + static_cast<std::ptrdiff_t>(bytes));
  port_->post(line.rank, h, "push");
  line.unacknowledged.push_back(std::move(posted));
  if (++line.next == line.chunks && fetch_) line.request.again = fabric_.now() + wait_after(0);
  return true;
}

bool Courier::post_again(Line& line, Posted& p, const char* label) {
  const double now = fabric_.now();
  if (p.again > now) return false;
  const auto draft = port_->draft(line.rank, p.payload.size());
  p.again = now + wait_after(p.tries);
  if (!draft) return false;
  ++p.tries;
  std::ranges::copy(p.payload, draft->begin());
  port_->post(line.rank, p.header, label);
  return true;
}

void Courier::send_again(Line& line) {
  for (Posted& p : line.unacknowledged) post_again(line, p, "once more");
  std::erase_if(line.unacknowledged,
                [](const Posted& p) { return p.header.operation == number(Word::bye) && p.tries == goodbyes; });
  // A request that goes along with an update is heard with its last chunk.
  if (line.missing > 0 && line.unacknowledged.empty()) post_again(line, line.request, "once more");
}

double Courier::next_time() const {
  double first = std::numeric_limits<double>::infinity();
  if (!port_->lossy()) return first;
  for (const Line& line : lines_) {
    for (const Posted& p : line.unacknowledged) first = std::min(first, p.again);
    if (line.missing > 0 && line.unacknowledged.empty()) first = std::min(first, line.request.again);
  }
  return first;
}

}  // namespace gradmeter::dataparallel
