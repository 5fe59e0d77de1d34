#include <complex>
#include <numbers>

#include "case.hpp"

namespace kiln::cli::demo {
namespace {

// Stockham's FFT of 8^STAGES points per group. Each work item keeps eight points in registers.
constexpr const char* fft_source = R"(FUNCTION float2 product(float2 a, float2 b) {
  return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

FUNCTION float2 unit(float angle, float turn) { return make_float2(cos(angle), turn * sin(angle)); }

FUNCTION int reversed(int i) { return ((i & 1) << 2) | (i & 2) | (i >> 2); }

KERNEL {
  int thread = local_id_x;
  int base = group_id_x * POINTS;

  float2 v[RADIX];
  float2 t[RADIX];
  for (int r = 0; r < RADIX; ++r) v[r] = signal[base + thread + r * GROUP_X];
  int span = 1;
  for (int stage = 0; stage < STAGES; ++stage) {
    int phase = thread % span;
    float angle = -2.0f * PI * to_float(phase) / to_float(span * RADIX);
    for (int r = 0; r < RADIX; ++r) {
      int from = reversed(r);
      t[r] = product(v[from], unit(angle * to_float(from), direction));
    }
    for (int apart = 1; apart < RADIX; apart <<= 1)
      for (int i = 0; i < RADIX; i += 2 * apart)
        for (int k = 0; k < apart; ++k) {
          float2 a = t[i + k];
          float2 b = product(t[i + k + apart], unit(-PI * to_float(k) / to_float(apart), direction));
          t[i + k] = a + b;
          t[i + k + apart] = a - b;
        }
    int to = (thread - phase) * RADIX + phase;
    for (int r = 0; r < RADIX; ++r) line[to + r * span] = t[r];
    group_barrier();
    for (int r = 0; r < RADIX; ++r) v[r] = line[thread + r * GROUP_X];
    group_barrier();
    span *= RADIX;
  }
  for (int r = 0; r < RADIX; ++r) spectrum[base + thread + r * GROUP_X] = v[r] * scale;
}
)";

// By the definition, with n multiplications per point.
std::vector<float> transform(const std::vector<float>& signal, std::size_t points, double direction, double scale) {
  std::vector<std::complex<double>> roots;
  for (std::size_t i = 0; i < points; ++i)
    roots.push_back(std::polar(
        1.0, -direction * 2.0 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(points)));
  std::vector<float> spectrum;
  for (std::size_t base = 0; base < signal.size() / 2; base += points)
    for (std::size_t k = 0; k < points; ++k) {
      std::complex<double> sum;
      for (std::size_t i = 0; i < points; ++i)
        sum += std::complex<double>(double{signal[2 * (base + i)]}, double{signal[2 * (base + i) + 1]}) *
               roots[i * k % points];
      spectrum.push_back(static_cast<float>(scale * sum.real()));
      spectrum.push_back(static_cast<float>(scale * sum.imag()));
    }
  return spectrum;
}

Case fft(std::string name, int stages) {
  constexpr std::uint32_t batch = 2;
  constexpr float direction = 1.0F;
  constexpr float scale = 1.0F;
  const std::size_t points = std::size_t{1} << 3 * stages;
  std::vector<float> signal = noise(2 * batch * points, 1);
  std::vector<float> expected = transform(signal, points, double{direction}, double{scale});
  return {.kernel = {.name = std::move(name),
                     .buffers = {{"signal", Type::f32x2}, {"spectrum", Type::f32x2, Access::write}},
                     .scalars = {{"direction", Type::f32}, {"scale", Type::f32}},
                     .shared = {{"line", Type::f32x2, {"POINTS"}}},
                     .group_size = {static_cast<std::uint32_t>(points / 8), 1, 1},
                     .parameters = {{"STAGES", std::to_string(stages)},
                                    {"RADIX", "8"},
                                    {"POINTS", "(GROUP_X * RADIX)"},
                                    {"PI", "3.14159265f"}},
                     .source = fft_source},
          .groups = {batch, 1, 1},
          .scalars = {direction, scale},
          .inputs = {std::move(signal)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Case> fft_cases() { return {fft("fft_512_radix8", 3)}; }

}  // namespace kiln::cli::demo
