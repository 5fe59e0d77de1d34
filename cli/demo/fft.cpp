#include <complex>
#include <numbers>

#include "kernel.hpp"

namespace kiln::cli::demo {
namespace {

// Stockham's FFT of 8^STAGES points, a group each, a thread for every eight points, which it has in registers.
constexpr const char* source = R"(#version 430
layout(local_size_x = THREADS) in;
layout(std430, binding = 0) readonly buffer Input { vec2 signal[]; };
layout(std430, binding = 1) writeonly buffer Output { vec2 spectrum[]; };
layout(std140, binding = 0) uniform Parameters { float direction; float scale; };

const float PI = 3.14159265358979;
const int RADIX = 8;
const int POINTS = THREADS * RADIX;
shared vec2 line[POINTS];

vec2 product(vec2 a, vec2 b) { return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
vec2 unit(float angle) { return vec2(cos(angle), direction * sin(angle)); }

int reversed(int i) {
  int r = 0;
  for (int bit = 1; bit < RADIX; bit <<= 1) {
    r = r << 1 | i & 1;
    i >>= 1;
  }
  return r;
}

void butterfly(inout vec2 v[RADIX]) {
  vec2 t[RADIX];
  for (int i = 0; i < RADIX; ++i) t[i] = v[reversed(i)];
  for (int i = 0; i < RADIX; i += 2) {
    vec2 a = t[i];
    vec2 b = t[i + 1];
    t[i] = a + b;
    t[i + 1] = a - b;
  }
  for (int i = 0; i < RADIX; i += 4)
    for (int k = 0; k < 2; ++k) {
      vec2 a = t[i + k];
      vec2 b = product(t[i + k + 2], unit(-PI * float(k) / 2.0));
      t[i + k] = a + b;
      t[i + k + 2] = a - b;
    }
  for (int k = 0; k < 4; ++k) {
    vec2 a = t[k];
    vec2 b = product(t[k + 4], unit(-PI * float(k) / 4.0));
    t[k] = a + b;
    t[k + 4] = a - b;
  }
  v = t;
}

void main() {
  int thread = int(gl_LocalInvocationID.x);
  int base = int(gl_WorkGroupID.x) * POINTS;

  vec2 v[RADIX];
  for (int r = 0; r < RADIX; ++r) v[r] = signal[base + thread + r * THREADS];
  int span = 1;
  for (int stage = 0; stage < STAGES; ++stage) {
    int phase = thread % span;
    float angle = -2.0 * PI * float(phase) / float(span * RADIX);
    for (int r = 1; r < RADIX; ++r) v[r] = product(v[r], unit(angle * float(r)));
    butterfly(v);
    int to = (thread - phase) * RADIX + phase;
    for (int r = 0; r < RADIX; ++r) line[to + r * span] = v[r];
    barrier();
    for (int r = 0; r < RADIX; ++r) v[r] = line[thread + r * THREADS];
    barrier();
    span *= RADIX;
  }
  for (int r = 0; r < RADIX; ++r) spectrum[base + thread + r * THREADS] = scale * v[r];
}
)";

// The definition, at the cost of n multiplications a point.
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

Kernel fft(std::string name, int stages) {
  constexpr std::uint32_t batch = 2;
  const struct {
    float direction = 1.0F;
    float scale = 1.0F;
  } parameters;
  const std::size_t points = std::size_t{1} << 3 * stages;
  std::vector<float> signal = noise(2 * batch * points, 1);
  std::vector<float> expected = transform(signal, points, double{parameters.direction}, double{parameters.scale});
  return {.request =
              Request({.name = std::move(name),
                       .source = source,
                       .defines = {{"STAGES", std::to_string(stages)}, {"THREADS", std::to_string(points / 8)}}}),
          .groups = {batch, 1, 1},
          .parameters = bytes_of(parameters),
          .inputs = {std::move(signal)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Kernel> fft_kernels() { return {fft("fft_512_radix8", 3)}; }

}  // namespace kiln::cli::demo
