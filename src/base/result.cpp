#include <kiln/result.hpp>

namespace kiln {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_request: return "invalid_request";
    case ErrorCode::include_not_found: return "include_not_found";
    case ErrorCode::include_cycle: return "include_cycle";
    case ErrorCode::compile_failed: return "compile_failed";
    case ErrorCode::load_failed: return "load_failed";
    case ErrorCode::damaged: return "damaged";
    case ErrorCode::no_device: return "no_device";
    case ErrorCode::device_failed: return "device_failed";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::io: return "io";
    case ErrorCode::outdated: return "outdated";
    case ErrorCode::cancelled: return "cancelled";
    case ErrorCode::timed_out: return "timed_out";
    case ErrorCode::callback_failed: return "callback_failed";
    case ErrorCode::denied: return "denied";
    case ErrorCode::untrusted: return "untrusted";
    case ErrorCode::not_compiled: return "not_compiled";
  }
  return "unknown";
}

std::string Error::describe() const { return log_.empty() ? message_ : message_ + "\n" + log_; }

}  // namespace kiln
