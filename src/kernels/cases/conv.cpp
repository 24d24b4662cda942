// Convolution by oneDNN, forward and backward: fp32; bf16 with sums in fp32; forward u8 by s8 with sums in int32.
// The library chooses the layouts, and data is brought into them before anything is timed, as DeepBench does. The
// algorithm is always the direct one: Winograd's transforms lose digits that a check as tight as this would miss.
#include <algorithm>
#include <cmath>
#include <deque>
#include <unordered_map>

#include "kernels/cases/makers.hpp"
#include "kernels/onednn.hpp"
#include "kernels/reference/conv.hpp"

namespace gradmeter::kernels {
namespace {

using onednn::Tag;
using onednn::Tensor;
using onednn::Type;
using Description = dnnl::memory::desc;

/// The three tensors of a pass, in the layouts that the library wants: two are read, or their gradients, one computed.
struct Made {
  dnnl::primitive primitive;
  Description input, filters, output, scratchpad;
  std::string name;
};

class Maker {
 public:
  Maker(const ConvShape& s, Precision p, const dnnl::engine& engine)
      : engine_(engine),
        input_{s.batch, s.channels, s.height, s.width},
        filters_{s.filters, s.channels, s.filter_height, s.filter_width},
        output_{s.batch, s.filters, s.out_height(), s.out_width()},
        strides_{onednn::dim(s.stride_height), onednn::dim(s.stride_width)},
        pads_{onednn::dim(s.pad_height), onednn::dim(s.pad_width)},
        types_(onednn::operand_types(p)) {
    attributes_.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  }

  Description input(Tag tag) const { return input_.in(types_.left, tag); }
  Description filters(Tag tag) const { return filters_.in(types_.right, tag); }
  Description output(Tag tag) const { return output_.in(types_.result, tag); }

  Made make(Pass pass) const {
    if (pass == Pass::backward_data) return backward_data();
    return pass == Pass::forward ? forward() : backward_weights();
  }

 private:
  struct Extents {
    std::size_t a, b, c, d;
    Description in(Type t, Tag tag) const {
      return {{onednn::dim(a), onednn::dim(b), onednn::dim(c), onednn::dim(d)}, t, tag};
    }
  };

  dnnl::convolution_forward::primitive_desc describe(dnnl::prop_kind kind) const {
    return {{kind, dnnl::algorithm::convolution_direct, input(Tag::any), filters(Tag::any), output(Tag::any), strides_,
             pads_, pads_},
            attributes_,
            engine_};
  }
  template <class Desc>
  static Made made(const Desc& d, const dnnl::primitive& p, const Description& input, const Description& filters,
                   const Description& output) {
    return {p, input, filters, output, d.scratchpad_desc(), d.impl_info_str()};
  }
  Made forward() const {
    const auto d = describe(dnnl::prop_kind::forward_inference);
    return made(d, dnnl::convolution_forward(d), d.src_desc(), d.weights_desc(), d.dst_desc());
  }
  Made backward_data() const {
    const dnnl::convolution_backward_data::primitive_desc d(
        {dnnl::algorithm::convolution_direct, input(Tag::any), filters(Tag::any), output(Tag::any), strides_, pads_,
         pads_},
        attributes_, engine_, describe(dnnl::prop_kind::forward_training));
    return made(d, dnnl::convolution_backward_data(d), d.diff_src_desc(), d.weights_desc(), d.diff_dst_desc());
  }
  Made backward_weights() const {
    const dnnl::convolution_backward_weights::primitive_desc d(
        {dnnl::algorithm::convolution_direct, input(Tag::any), filters(Tag::any), output(Tag::any), strides_, pads_,
         pads_},
        attributes_, engine_, describe(dnnl::prop_kind::forward_training));
    return made(d, dnnl::convolution_backward_weights(d), d.src_desc(), d.diff_weights_desc(), d.diff_dst_desc());
  }

  dnnl::engine engine_;
  Extents input_, filters_, output_;
  dnnl::memory::dims strides_, pads_;
  onednn::OperandTypes types_;
  dnnl::primitive_attr attributes_;
};

struct Arguments {
  int input, filters, output;
};
Arguments arguments_of(Pass p) {
  if (p == Pass::backward_data) return {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST};
  if (p == Pass::backward_weights) return {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST};
  return {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
}

class ConvCase final : public KernelCase {
  struct Operands {
    Tensor input, filters, output;
    std::unordered_map<int, dnnl::memory> arguments = {};
  };

 public:
  ConvCase(const Problem& p, const KernelCaseOptions& o)
      : problem_(p),
        s_(std::get<ConvShape>(p.shape)),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        made_(onednn::checked("creation of a convolution primitive",
                              [&] { return Maker(s_, p.precision, engine_).make(p.pass); })),
        scratch_(made_.scratchpad, engine_) {
    const Maker maker(s_, p.precision, engine_);
    const Arguments names = arguments_of(p.pass);
    for (std::size_t i = 0; i < o.sets; ++i) {
      Operands& x = sets_.emplace_back(
          Operands{Tensor(made_.input, engine_), Tensor(made_.filters, engine_), Tensor(made_.output, engine_)});
      if (p.pass != Pass::backward_data) fill(x.input, maker.input(Tag::nchw), o.seed + 3 * i);
      if (p.pass != Pass::backward_weights) fill(x.filters, maker.filters(Tag::oihw), o.seed + 3 * i + 1);
      if (p.pass != Pass::forward) fill(x.output, maker.output(Tag::nchw), o.seed + 3 * i + 2);
      x.arguments = {{names.input, x.input.memory()},
                     {names.filters, x.filters.memory()},
                     {names.output, x.output.memory()},
                     {DNNL_ARG_SCRATCHPAD, scratch_.memory()}};
    }
  }

  void run(std::size_t set) override {
    onednn::checked("convolution", [&] {
      made_.primitive.execute(stream_, sets_[set].arguments);
      stream_.wait();
    });
  }

  KernelCaseCheck check(double flops_at_most, bool inject_error) override {
    run(0);
    Operands& x = sets_[0];
    Tensor result = (problem_.pass == Pass::forward         ? x.output
                     : problem_.pass == Pass::backward_data ? x.input
                                                            : x.filters)
                        .dense(Tag::abcd);
    const double of_one = flops(problem_) / static_cast<double>(result.elements());
    const auto count = std::clamp(flops_at_most / of_one, 16.0, static_cast<double>(result.elements()));
    const auto places = sample_places(result.elements(), static_cast<std::size_t>(count), 1);
    if (inject_error) onednn::add_to_element(result, places[places.size() / 2], 0.5 * usual_size(of_one / 2));
    return checked_elements(result, places);
  }

  std::string implementation() const override { return fmt::format("onednn {}", made_.name); }

 private:
  void fill(Tensor& tensor, const Description& plain, std::uint64_t seed) {
    Tensor numbers(plain, engine_);
    // Without VNNI two products of 255·127 would saturate; half the range does not.
    const bool narrow = problem_.precision == Precision::int8 && !onednn::has_exact_int8();
    numbers.fill(seed, narrow ? 0.5 : 1);
    onednn::reorder(numbers, tensor);
  }

  /// Root mean square of a sum of so many products of two random numbers.
  double usual_size(double terms) const {
    const double product = problem_.precision == Precision::int8 ? 148 * 73 : 1;
    return product * std::sqrt(std::max(terms, 1.0));
  }

  KernelCaseCheck checked_elements(const Tensor& result, const std::vector<std::size_t>& places) const {
    const Operands& x = sets_[0];
    const auto numbers = [](const Tensor& t, bool needed) {
      return needed ? t.dense(Tag::abcd).floats() : std::vector<float>{};
    };
    const auto input = numbers(x.input, problem_.pass != Pass::backward_data);
    const auto filters = numbers(x.filters, problem_.pass != Pass::backward_weights);
    const auto output = numbers(x.output, problem_.pass != Pass::forward);
    ElementCheck element_check;
    for (const std::size_t at : places) {
      const ReferenceSum sum = problem_.pass == Pass::forward         ? conv_forward_at(s_, input, filters, at)
                               : problem_.pass == Pass::backward_data ? conv_backward_data_at(s_, output, filters, at)
                                                                      : conv_backward_weights_at(s_, input, output, at);
      element_check.add(result.at(at), sum.value, allowed_distance(sum, problem_.precision), sum.terms > 0);
    }
    return element_check.verdict();
  }

  Problem problem_;
  ConvShape s_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  Made made_;
  Tensor scratch_;
  std::deque<Operands> sets_;
};

}  // namespace

std::string conv_case_refusal(const Problem& p) {
  const auto& s = std::get<ConvShape>(p.shape);
  if (s.width * s.height * s.channels * s.batch * s.filters * s.filter_width * s.filter_height == 0)
    return "conv needs extents of at least 1";
  if (s.stride_width * s.stride_height == 0) return "conv needs strides of at least 1";
  if (s.width + 2 * s.pad_width < s.filter_width || s.height + 2 * s.pad_height < s.filter_height)
    return "conv needs a filter that fits into the padded input";
  if (p.precision == Precision::int8 && p.pass != Pass::forward)
    return "int8 convolution has a forward pass alone: gradients need more range than 8 bits have";
  if (p.precision == Precision::bf16 && !onednn::has_bf16())
    return "oneDNN has bf16 convolution for AVX-512 alone, which this processor lacks";
  return {};
}

std::size_t conv_case_bytes(const Problem& p) { return static_cast<std::size_t>(bytes(p)); }

std::unique_ptr<KernelCase> make_conv_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<ConvCase>(p, o);
}

}  // namespace gradmeter::kernels
