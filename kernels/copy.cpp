#include "kernels/rows.hpp"

#include "base/try.hpp"

namespace kiln::kernels {
namespace {

// A work item copies 16 bytes, or converts four elements. The size of tensor buffers is a multiple of 16 bytes.
constexpr const char* copy_source = R"(KERNEL {
  for (int i = global_id_x; i < quads; i += GROUP_X * group_count_x) {
#if FROM_HALF
    float2 low = load_half2(from, 2 * i);
    float2 high = load_half2(from, 2 * i + 1);
    to[i] = make_float4(low.x, low.y, high.x, high.y);
#elif TO_HALF
    float4 quad = from[i];
    store_half2(to, 2 * i, make_float2(quad.x, quad.y));
    store_half2(to, 2 * i + 1, make_float2(quad.z, quad.w));
#else
    to[i] = from[i];
#endif
  }
}
)";

}  // namespace

Kernel copy_kernel(Type from, Type to) {
  const bool converts = from != to;
  const auto type = [&](Type of) { return !converts ? Type::u32x4 : of == Type::f16 ? Type::f16 : Type::f32x4; };
  return {.name = !converts           ? "copy"
                  : from == Type::f16 ? "copy_f16_to_f32"
                                      : "copy_f32_to_f16",
          .buffers = {{"from", type(from)}, {"to", type(to), Access::write}},
          .scalars = {{"quads"}},
          .group_size = {128, 1, 1},
          .parameters = {{"FROM_HALF", flag(converts && from == Type::f16)},
                         {"TO_HALF", flag(converts && to == Type::f16)}},
          .source = copy_source};
}

void add_conversion(Plan& plan, Typed from, Typed to, std::int64_t count) {
  const auto bytes = [&](Type type) { return static_cast<double>(count) * (type == Type::f16 ? 2 : 4); };
  const bool halves = from.type == Type::f16 && to.type == Type::f16;
  const std::int64_t quads = quotient_up(count, halves ? 8 : 4);
  const Kernel kernel = copy_kernel(from.type, to.type);
  plan.step(kernel, groups_for(quotient_up(quads, kernel.group_size[0])), {from.place, to.place}, {number(quads)},
            {.bytes = bytes(from.type) + bytes(to.type)});
}

}  // namespace kiln::kernels

namespace kiln {

Result<Tensor> copy(Runner on, const Tensor& x, Type output) {
  auto plan = KILN_TRY(kernels::Plan::of("copy", on, {{"x", &x}}));
  const auto from = plan.read_as_it_is(x);
  const auto to = plan.write_as_it_is(x.shape(), output);
  kernels::add_conversion(plan, {from, x.type()}, {to, output}, x.count());
  return std::move(plan).finish();
}

}  // namespace kiln
