#include "kernels/library.hpp"

#include <oneapi/dnnl/dnnl.h>

#include "core/format.hpp"

namespace gradmeter::kernels {

std::map<std::string, std::string> library_versions() {
  const dnnl_version_t* v = dnnl_version();
  return {{"oneDNN", fmt::format("{}.{}.{}", v->major, v->minor, v->patch)}};
}

std::string onednn_refusal() { return {}; }

}  // namespace gradmeter::kernels
