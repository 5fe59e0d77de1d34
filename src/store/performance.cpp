#include "store/performance.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "store/directory.hpp"

namespace kiln::store {
namespace {

constexpr std::string_view first_line = "kiln performance 1: key, GFLOP/s, GB/s, noted in seconds since 1970\n";
// Key, two numbers such as 1.23456789e+02, and a time, each followed by a space or newline.
constexpr std::size_t key_width = 64;
constexpr std::size_t number_width = 15;
constexpr std::size_t time_width = 12;
constexpr std::size_t line_width = key_width + 1 + 2 * (number_width + 1) + time_width + 1;

/// Parses a field; 0 if it is not a number.
template <class T>
T number_in(std::string_view field) {
  field.remove_prefix(std::min(field.find_first_not_of(' '), field.size()));
  T value{};
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  return error == std::errc() && end == field.data() + field.size() ? value : T{};
}

/// Replaces values that the file cannot hold (negative, infinite, NaN) by 0.
double writable(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

double performance_in(std::string_view field) { return writable(number_in<double>(field)); }

Performance performance_of(std::string_view line) {
  return {performance_in(line.substr(key_width + 1, number_width)),
          performance_in(line.substr(key_width + 1 + number_width + 1, number_width))};
}

std::int64_t noted_of(std::string_view line) {
  return number_in<std::int64_t>(line.substr(key_width + 1 + 2 * (number_width + 1), time_width));
}

}  // namespace

std::size_t PerformanceFile::size() const noexcept {
  return text_.empty() ? 0 : (text_.size() - first_line.size()) / line_width;
}

std::string_view PerformanceFile::line(std::size_t number) const {
  return std::string_view(text_).substr(first_line.size() + number * line_width, line_width);
}

PerformanceFile PerformanceFile::read(const base::Folder& folder) {
  auto file = folder.read(performance_name, first_line.size() + max_programs * line_width);
  if (!file || !*file) return {};
  const auto& bytes = (*file)->bytes;
  return parse(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

PerformanceFile PerformanceFile::parse(std::string text) {
  if (!text.starts_with(first_line) || (text.size() - first_line.size()) % line_width != 0) return {};
  return PerformanceFile(std::move(text));
}

Performance PerformanceFile::find(const Digest& key) const {
  const std::string wanted = key.hex();
  std::size_t first = 0;
  std::size_t last = size();
  while (first < last) {
    const std::size_t middle = first + (last - first) / 2;
    const int order = line(middle).substr(0, key_width).compare(wanted);
    if (order == 0) return performance_of(line(middle));
    if (order < 0)
      first = middle + 1;
    else
      last = middle;
  }
  return {};
}

Result<PerformanceFile> PerformanceFile::add(const base::Folder& folder,
                                             const std::map<Digest, Performance>& notes) {
  auto lock_file = KILN_TRY(folder.open_lock_file(lock_name));
  const auto lock = base::FileLock::acquire(lock_file, lock_byte::performance, bookkeeping_timeout);

  struct Noted {
    std::int64_t when;
    Performance performance;
    bool is_new = false;
  };
  std::map<std::string, Noted> all;
  const PerformanceFile before = read(folder);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const std::string_view line = before.line(i);
    // Drop damaged lines.
    if (base::digest_from_hex(line.substr(0, key_width)))
      all.insert_or_assign(std::string(line.substr(0, key_width)), Noted{noted_of(line), performance_of(line)});
  }
  const std::int64_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  for (const auto& [key, performance] : notes) all.insert_or_assign(key.hex(), Noted{now, performance, true});

  if (all.size() > max_programs) {
    // Times have a resolution of seconds, and clocks can be wrong; `is_new` ranks new notes above old ones.
    std::vector<std::tuple<bool, std::int64_t, std::string>> oldest;
    for (const auto& [key, noted] : all) oldest.emplace_back(noted.is_new, noted.when, key);
    const auto drop = static_cast<std::ptrdiff_t>(all.size() - max_programs);
    std::nth_element(oldest.begin(), oldest.begin() + drop, oldest.end());
    for (auto it = oldest.begin(); it != oldest.begin() + drop; ++it) all.erase(std::get<std::string>(*it));
  }
  std::string text(first_line);
  for (const auto& [key, noted] : all)
    text += fmt::format("{} {:>{}.8e} {:>{}.8e} {:>{}}\n", key, writable(noted.performance.gflops), number_width,
                        writable(noted.performance.gbps), number_width,
                        std::clamp<std::int64_t>(noted.when, 0, 999'999'999'999), time_width);
  KILN_TRY(folder.replace(performance_name, std::as_bytes(std::span(text.data(), text.size()))));
  return PerformanceFile(std::move(text));
}

}  // namespace kiln::store
