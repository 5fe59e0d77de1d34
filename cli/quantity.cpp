#include "quantity.hpp"

#include <array>
#include <cctype>
#include <cmath>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace kiln::cli {
namespace {

struct Measured {
  double value;
  std::string unit;
};

/// A number and the unit after it, in lower case.
std::optional<Measured> split(std::string_view text) {
  std::string number;
  std::size_t at = 0;
  while (at < text.size() && (std::isdigit(static_cast<unsigned char>(text[at])) != 0 || text[at] == '.'))
    number += text[at++];
  while (at < text.size() && text[at] == ' ') ++at;
  std::string unit;
  while (at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])) != 0)
    unit += static_cast<char>(std::tolower(static_cast<unsigned char>(text[at++])));
  if (at != text.size() || number.empty()) return std::nullopt;
  try {
    std::size_t used = 0;
    const double value = std::stod(number, &used);
    if (used != number.size()) return std::nullopt;
    return Measured{value, unit};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Larger values are rejected: their conversion to an integer would be undefined.
constexpr double largest = 9e18;

}  // namespace

std::string human_size(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::string_view unit = "B";
  for (const std::string_view next : {"kB", "MB", "GB", "TB"}) {
    // Avoids "1000.0".
    if (value < 999.95) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string human_duration(std::chrono::nanoseconds duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  if (seconds < 0.9995e-3) return fmt::format("{:.0f} µs", seconds * 1e6);
  if (seconds < 0.99995) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::uint64_t>(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

std::string human_age(std::chrono::system_clock::time_point moment, std::chrono::system_clock::time_point now) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - moment).count();
  if (seconds < 1) return "now";
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 48L * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

std::string human_count(std::uint64_t count, std::string_view noun) {
  if (count == 1) return fmt::format("1 {}", noun);
  if (noun.ends_with("y") && !noun.ends_with("ey"))
    return fmt::format("{} {}ies", count, noun.substr(0, noun.size() - 1));
  return fmt::format("{} {}s", count, noun);
}

std::string iso_time(std::chrono::system_clock::time_point moment) {
  const std::time_t seconds =
      std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(moment));
  std::tm parts{};
  // A forged time may have a year that std::tm cannot hold.
  if (gmtime_r(&seconds, &parts) == nullptr) return "unknown";
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", parts);
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  auto measured = split(text);
  if (!measured) return std::nullopt;
  std::string& unit = measured->unit;
  if (unit.ends_with('b')) unit.pop_back();
  double factor = 1;
  if (!unit.empty()) {
    const auto power = std::string_view("kmgt").find(unit[0]);
    const bool binary = unit.size() == 2 && unit[1] == 'i';
    if (power == std::string_view::npos || (unit.size() > 1 && !binary)) return std::nullopt;
    factor = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  const double bytes = measured->value * factor;
  if (bytes > largest) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const auto measured = split(text);
  if (!measured) return std::nullopt;
  struct Unit {
    std::string_view name;
    double seconds;
  };
  constexpr std::array units = {Unit{"ms", 1e-3}, Unit{"s", 1},     Unit{"m", 60},        Unit{"min", 60},
                                Unit{"h", 3600},  Unit{"d", 86400}, Unit{"w", 7 * 86400}, Unit{"y", 365 * 86400}};
  for (const auto& [name, seconds] : units) {
    if (measured->unit != name) continue;
    const double all = measured->value * seconds;
    // system_clock counts nanoseconds from 1970 in 64 bits: a time further back would overflow.
    if (all > 200.0 * 365 * 86400) return std::nullopt;
    return std::chrono::milliseconds(static_cast<std::int64_t>(all * 1000));
  }
  return std::nullopt;
}

}  // namespace kiln::cli
