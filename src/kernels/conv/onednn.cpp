// SPDX-License-Identifier: Apache-2.0
// Convolution by oneDNN, forward and backward: fp32; bf16 with sums in fp32; forward u8 by s8 with sums in int32. The
// library chooses the layouts. The algorithm is always the direct one: Winograd's transforms lose digits that a check
// of single elements would miss.
#include "kernels/host/onednn.hpp"
#include "kernels/backends.hpp"

namespace gradmeter::kernels {
namespace {

using onednn::Argument;
using onednn::PreparedPrimitive;
using onednn::Tag;
using onednn::Type;
using Description = dnnl::memory::desc;

dnnl::memory::dims dims(std::initializer_list<std::size_t> extents) {
  dnnl::memory::dims dims;
  for (const std::size_t n : extents) dims.push_back(onednn::dim(n));
  return dims;
}

class ConvMaker {
 public:
  ConvMaker(const ConvShape& s, Precision p, bool training, const dnnl::engine& engine)
      : engine_(engine),
        training_(training),
        input_(dims({s.batch, s.channels, s.height, s.width})),
        filters_(dims({s.filters, s.channels, s.filter_height, s.filter_width})),
        output_(dims({s.batch, s.filters, s.out_height(), s.out_width()})),
        strides_(dims({s.stride_height, s.stride_width})),
        pads_(dims({s.pad_height, s.pad_width})),
        types_(onednn::operand_types(p)) {
    attributes_.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (training_) layouts_ = training_layouts();
  }

  PreparedPrimitive make(Pass pass) const {
    if (pass == Pass::backward_data) return backward_data();
    return pass == Pass::forward ? forward() : backward_weights();
  }

 private:
  Description input(Tag tag) const { return {input_, types_.left, tag}; }
  Description filters(Tag tag) const { return {filters_, types_.right, tag}; }
  Description output(Tag tag) const { return {output_, types_.result, tag}; }

  dnnl::convolution_forward::primitive_desc describe(dnnl::prop_kind kind) const {
    return {{kind, dnnl::algorithm::convolution_direct, input(layouts_.input), filters(Tag::any),
             output(layouts_.output), strides_, pads_, pads_},
            attributes_,
            engine_};
  }
  dnnl::convolution_backward_data::primitive_desc describe_backward_data() const {
    const auto forward = describe(dnnl::prop_kind::forward_training);
    const auto [in, out] = images(forward);
    return {{dnnl::algorithm::convolution_direct, in, filters(Tag::any), out, strides_, pads_, pads_},
            attributes_,
            engine_,
            forward};
  }
  struct Layouts {
    Tag input, output;
  };
  /// Layouts of the images with which neither forward nor backward data falls back to the library's reference loops,
  /// which are far slower. The library's own choice for few input channels makes backward data do so; such images are
  /// stored in blocks of channels, the last filled up with zeros, or plain. Images of 1 or 3 channels keep the
  /// library's choice: they are input data, whose gradient is not needed.
  Layouts training_layouts() {
    constexpr Layouts chosen_by_library{Tag::any, Tag::any};
    if (input_[1] == 1 || input_[1] == 3) return chosen_by_library;
    for (const Layouts& l : {chosen_by_library, Layouts{Tag::nChw16c, Tag::any}, Layouts{Tag::nChw8c, Tag::any},
                             Layouts{Tag::nchw, Tag::nchw}}) {
      layouts_ = l;
      try {
        if (!is_reference(describe(dnnl::prop_kind::forward_training)) && !is_reference(describe_backward_data()))
          return l;
      } catch (const dnnl::error&) {  // no kernel takes these layouts
      }
    }
    return chosen_by_library;
  }
  static bool is_reference(const dnnl::primitive_desc_base& d) {
    return std::string_view(d.impl_info_str()).starts_with("ref");
  }
  template <class Primitive, class Desc>
  static PreparedPrimitive made(const Desc& d, const std::vector<Argument>& inputs, const Argument& output) {
    return {.primitive = Primitive(d),
            .scratchpad = d.scratchpad_desc(),
            .implementation = d.impl_info_str(),
            .inputs = inputs,
            .outputs = {output}};
  }
  PreparedPrimitive forward() const {
    const auto d = describe(training_ ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference);
    return made<dnnl::convolution_forward>(d,
                                           {{"input", DNNL_ARG_SRC, d.src_desc(), input(Tag::nchw)},
                                            {"filters", DNNL_ARG_WEIGHTS, d.weights_desc(), filters(Tag::oihw)}},
                                           {"output", DNNL_ARG_DST, d.dst_desc(), output(Tag::nchw)});
  }
  /// The layouts of input and output in a backward pass: in training those of forward, otherwise the library's choice.
  std::pair<Description, Description> images(const dnnl::convolution_forward::primitive_desc& forward) const {
    if (training_) return {forward.src_desc(), forward.dst_desc()};
    return {input(Tag::any), output(Tag::any)};
  }
  PreparedPrimitive backward_data() const {
    const auto d = describe_backward_data();
    return made<dnnl::convolution_backward_data>(
        d,
        {{"output gradient", DNNL_ARG_DIFF_DST, d.diff_dst_desc(), output(Tag::nchw)},
         {"filters", DNNL_ARG_WEIGHTS, d.weights_desc(), filters(Tag::oihw)}},
        {"input gradient", DNNL_ARG_DIFF_SRC, d.diff_src_desc(), input(Tag::nchw)});
  }
  PreparedPrimitive backward_weights() const {
    const auto forward = describe(dnnl::prop_kind::forward_training);
    const auto [in, out] = images(forward);
    const dnnl::convolution_backward_weights::primitive_desc d(
        {dnnl::algorithm::convolution_direct, in, filters(Tag::any), out, strides_, pads_, pads_}, attributes_, engine_,
        forward);
    return made<dnnl::convolution_backward_weights>(
        d,
        {{"input", DNNL_ARG_SRC, d.src_desc(), input(Tag::nchw)},
         {"output gradient", DNNL_ARG_DIFF_DST, d.diff_dst_desc(), output(Tag::nchw)}},
        {"filters gradient", DNNL_ARG_DIFF_WEIGHTS, d.diff_weights_desc(), filters(Tag::oihw)});
  }

  dnnl::engine engine_;
  bool training_;
  Layouts layouts_{Tag::any, Tag::any};
  dnnl::memory::dims input_, filters_, output_, strides_, pads_;
  onednn::OperandTypes types_;
  dnnl::primitive_attr attributes_;
};

}  // namespace

std::string onednn_conv_refusal(const Problem& p) {
  if (auto why = conv_shape_refusal(p); !why.empty()) return why;
  if (p.precision == Precision::int8 && p.pass != Pass::forward)
    return "int8 convolution has a forward pass alone: gradients need more range than 8 bits have";
  return p.precision == Precision::bf16 ? onednn::bf16_refusal() : "";
}

std::unique_ptr<Op> make_onednn_conv(const Problem& p, const OpOptions& o, runtime::Device& device) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return onednn::make_primitive_op(
      onednn::checked("creation of a convolution primitive",
                      [&] {
                        auto prepared =
                            ConvMaker(std::get<ConvShape>(p.shape), p.precision, o.training, engine).make(p.pass);
                        if (o.quantization) onednn::quantize(*o.quantization, 0, prepared);
                        return prepared;
                      }),
      {.flops = flops(p), .bytes = bytes(p)}, engine, device);
}

}  // namespace gradmeter::kernels
