#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Formats and parses sizes, durations and times for people.
namespace kiln::cli {

/// "1.2 MB", in powers of 1000.
std::string human_size(std::uint64_t bytes);
/// "3.4 ms", "2.1 s", "4 min 10 s".
std::string human_duration(std::chrono::nanoseconds duration);
/// The time since a moment: "12 s", "5 min", "3 h", "40 d"; "now" if it is less than a second or negative.
std::string human_age(std::chrono::system_clock::time_point moment, std::chrono::system_clock::time_point now);
/// "1 program", "2 programs".
std::string human_count(std::uint64_t count, std::string_view noun);
/// Date and time in UTC in ISO 8601 format, to the second.
std::string iso_time(std::chrono::system_clock::time_point moment);

/// Parses "500MB", "1.5 GiB" or "4096" to bytes. k, M, G and T are powers of 1000; Ki, Mi, Gi and Ti of 1024.
std::optional<std::uint64_t> parse_size(std::string_view text);
/// Parses "500ms", "45s", "90m", "12h", "30d", "2w" or "1y". The unit is required.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

}  // namespace kiln::cli
