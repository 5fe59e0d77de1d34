#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <kiln/executor.hpp>
#include <kiln/result.hpp>

namespace kiln::exec {

/// The job's name in error messages.
std::string title(const Job& job);

/// Validates a job.
Result<void> check(const Job& job);

/// The size of a job's memory.
std::size_t size_of(const JobMemory& memory);

/// The size of lent memory: rounded up by at most a quarter, to few different sizes, so that jobs of similar size
/// share buffers.
std::size_t rounded(std::size_t bytes);

/// Lent memory is freed after this many jobs did not use it.
constexpr std::uint64_t patience = 256;

}  // namespace kiln::exec
