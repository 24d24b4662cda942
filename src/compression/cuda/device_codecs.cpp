#include "compression/cuda/device_codecs.hpp"

#include <algorithm>
#include <array>

#include "compression/cuda/device_bucketed.hpp"
#include "compression/cuda/device_terngrad.hpp"
#include "compression/cuda/device_topk.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::compression::cuda {
namespace {

constexpr std::string_view fused = "one read and one write; a warp for each 512 elements of a bucket",
                           cast = "one read and one write; four elements a thread";

constexpr std::array table{
    DeviceForm{.name = "bf16", .how = cast, .make = make_device_bf16},
    DeviceForm{.name = "dgc", .kind = DeviceKind::parts, .how = "momentum_correction.hpp, one pass; then topk.hpp"},
    DeviceForm{.name = "fp16", .how = cast, .make = make_device_fp16},
    DeviceForm{.name = "fp8-e4m3", .how = fused, .make = make_device_fp8_e4m3},
    DeviceForm{.name = "fp8-e5m2", .how = fused, .make = make_device_fp8_e5m2},
    DeviceForm{.name = "lns4", .how = fused, .make = make_device_lns4},
    DeviceForm{.name = "natural8", .how = fused, .make = make_device_natural8},
    DeviceForm{.name = "onebit", .how = "one read and one write; signs by ballots", .make = make_device_onebit},
    DeviceForm{.name = "powersgd",
               .kind = DeviceKind::parts,
               .how = "low_rank.hpp: products by rows and by columns, orthonormal columns by one block"},
    DeviceForm{.name = "qsgd-elias",
               .kind = DeviceKind::none,
               .how =
                   "its stream of bits has no place where a second thread could begin to read, so that decoding would "
                   "take one thread as long as a tensor has elements"},
    DeviceForm{.name = "qsgd1", .how = fused, .make = make_device_qsgd1},
    DeviceForm{.name = "qsgd2", .how = fused, .make = make_device_qsgd},
    DeviceForm{.name = "qsgd4", .how = fused, .make = make_device_qsgd},
    DeviceForm{.name = "qsgd8", .how = fused, .make = make_device_qsgd},
    DeviceForm{.name = "randomk", .kind = DeviceKind::parts, .how = "randomk.hpp: a thread to each place"},
    DeviceForm{
        .name = "terngrad", .how = "two reads: the scale of the tensor, then its codes", .make = make_device_terngrad},
    DeviceForm{
        .name = "topk", .how = "two passes over histograms, then two that count and write", .make = make_device_topk},
};

}  // namespace

std::span<const DeviceForm> device_forms() { return table; }

DeviceCodecPtr make_device_codec(const CodecChoice& c) {
  const auto row = std::find_if(table.begin(), table.end(), [&](const auto& r) { return r.name == c.info->name; });
  if (row == table.end()) throw core::UsageError(fmt::format("codec {} is not in the table for GPUs", c.info->name));
  if (row->kind == DeviceKind::codec) return row->make(c);
  throw core::UsageError(fmt::format("codec {} cannot encode on a GPU by itself: {}; take another codec or the host's",
                                     c.info->name,
                                     row->kind == DeviceKind::none ? row->how : "it consists of collectives"));
}

}  // namespace gradmeter::compression::cuda
